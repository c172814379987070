// SPDX-License-Identifier: BSD-3-Clause
// Memory is read once: hash and statistics are computed from the same bytes in registers, or in the
// first-level cache, while the next block is prefetched. Views that are not contiguous are gathered
// block by block into a buffer of the same size, so that both are split identically and get
// bit-identical statistics.

#include "lib/digest/digest.h"

#define XXH_INLINE_ALL
#include <xxhash.h>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <cfenv>
#include <cmath>

#include "lib/digest/kernel.h"
#include "lib/digest/strides.h"
#include "lib/error.h"

namespace ddp_doctor {
namespace {

// The thread belongs to the examined program, which may flush subnormals
// (torch.set_flush_denormal), use another rounding mode or trap. None of this may change the
// results, and no flag raised here may remain.
class DefaultFloatingPoint {
 public:
  DefaultFloatingPoint(const DefaultFloatingPoint&) = delete;
  DefaultFloatingPoint& operator=(const DefaultFloatingPoint&) = delete;
#if defined(__SSE2__)
  // This is sufficient, and ten times faster than <cfenv>, which also saves the x87 state.
  DefaultFloatingPoint() { _mm_setcsr(kDefault); }
  ~DefaultFloatingPoint() { _mm_setcsr(callers_); }

 private:
  static constexpr unsigned kDefault = 0x1f80;
  const unsigned callers_ = _mm_getcsr();
#else
  DefaultFloatingPoint() {
    std::fegetenv(&callers_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatingPoint() { std::fesetenv(&callers_); }

 private:
  std::fenv_t callers_;
#endif
};

using Bits = std::array<std::uint8_t, 16>;

// The digest of a tensor of several blocks: the hash of its blocks' hashes.
class Tree {
 public:
  void add(const Bits& block) {
    if (blocks_++ == 0) {
      first_ = block;
      return;
    }
    if (blocks_ == 2) {
      XXH3_128bits_reset(&root_);
      XXH3_128bits_update(&root_, first_.data(), first_.size());
    }
    XXH3_128bits_update(&root_, block.data(), block.size());
  }

  Bits finish(const Kernel& kernel) const {
    if (blocks_ == 0) return kernel.hash(nullptr, 0);
    if (blocks_ == 1) return first_;
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&root_));
    return std::to_array(canonical.digest);
  }

 private:
  std::size_t blocks_ = 0;
  Bits first_;
  XXH3_state_t root_;
};

class Pass {
 public:
  Pass(DType dtype, const Kernel& kernel) : dtype_(dtype), kernel_(kernel) {}

  void add(const std::byte* block, std::size_t bytes, const std::byte* next) {
    tree_.add(kernel_.digest_block(dtype_, block, bytes, next, statistics_));
  }

  void add(const BlockDigest& block) {
    tree_.add(block.bits);
    statistics_.sum_of_squares += block.statistics.sum_of_squares;
    statistics_.max_abs = std::max(statistics_.max_abs, block.statistics.max_abs);
    statistics_.nonfinite += block.statistics.nonfinite;
  }

  TensorDigest finish(std::int64_t numel) const {
    TensorDigest result;
    result.bits = tree_.finish(kernel_);
    result.l2_norm = std::sqrt(statistics_.sum_of_squares);
    result.max_abs = statistics_.max_abs;
    result.nonfinite = statistics_.nonfinite;
    result.numel = numel;
    return result;
  }

 private:
  DType dtype_;
  const Kernel& kernel_;
  Tree tree_;
  Statistics statistics_;
};

const Kernel& fastest() { return *kernels().back(); }

std::int64_t count_elements(const TensorView& tensor) {
  if (tensor.sizes.size() != tensor.strides.size()) {
    throw Error("a tensor has " + std::to_string(tensor.sizes.size()) + " sizes but " +
                std::to_string(tensor.strides.size()) + " strides: give one stride per size");
  }
  std::int64_t numel = 1;
  for (const std::int64_t size : tensor.sizes) {
    if (size < 0 || __builtin_mul_overflow(numel, size, &numel)) {
      throw Error("a tensor has a dimension of size " + std::to_string(size) +
                  ", so its elements cannot be counted: give its sizes as PyTorch does");
    }
  }
  if (numel > 0 && tensor.data == nullptr) {
    throw Error("a tensor of " + std::to_string(numel) +
                " elements has no data: exclude meta and sparse tensors from the examination");
  }
  return numel;
}

void add_contiguous(Pass& pass, const std::byte* data, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += kBlock) {
    const std::size_t left = bytes - at;
    const std::byte* next = left >= 2 * kBlock ? data + at + kBlock : data + at;
    pass.add(data + at, std::min(kBlock, left), next);
  }
}

void add_gathered(Pass& pass, const TensorView& tensor) {
  alignas(64) std::byte block[kBlock];
  Gather gather(tensor);
  while (const std::size_t bytes = gather.next(block, kBlock)) pass.add(block, bytes, block);
}

Bits hash_contiguous(const std::byte* data, std::size_t bytes) {
  Tree tree;
  for (std::size_t at = 0; at < bytes; at += kBlock) {
    tree.add(fastest().hash(data + at, std::min(kBlock, bytes - at)));
  }
  return tree.finish(fastest());
}

}  // namespace

TensorDigest digest(const TensorView& tensor) { return digest_with(fastest(), tensor); }

TensorDigest digest_with(const Kernel& kernel, const TensorView& tensor) {
  const std::int64_t numel = count_elements(tensor);
  const std::size_t element = element_size(tensor.dtype);
  const DefaultFloatingPoint floating_point;
  Pass pass(tensor.dtype, kernel);
  if (numel > 0) {
    if (is_contiguous(tensor)) {
      add_contiguous(pass, static_cast<const std::byte*>(tensor.data),
                     static_cast<std::size_t>(numel) * element);
    } else {
      add_gathered(pass, tensor);
    }
  }
  return pass.finish(numel);
}

TensorDigest digest(const TensorView& tensor, const TensorDigest& probable) {
  const std::int64_t numel = count_elements(tensor);
  if (numel == probable.numel && is_contiguous(tensor)) {
    const std::size_t bytes = static_cast<std::size_t>(numel) * element_size(tensor.dtype);
    if (hash_contiguous(static_cast<const std::byte*>(tensor.data), bytes) == probable.bits) {
      return probable;
    }
  }
  return digest(tensor);
}

TensorDigest digest_of_blocks(DType dtype, std::span<const BlockDigest> blocks,
                              std::span<const std::byte> rest, std::int64_t numel) {
  const DefaultFloatingPoint floating_point;
  Pass pass(dtype, fastest());
  for (const auto& block : blocks) pass.add(block);
  if (!rest.empty()) pass.add(rest.data(), rest.size(), rest.data());
  return pass.finish(numel);
}

std::string to_hex(const std::array<std::uint8_t, 16>& bits) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const std::uint8_t byte : bits) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 0xf];
  }
  return hex;
}

}  // namespace ddp_doctor
