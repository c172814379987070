// Memory is read once: each block is hashed while it is fetched, and the statistics read it again
// from the first-level cache. Views that are not contiguous are gathered block by block into a
// buffer of the same size, so that both kinds are cut alike and get the same figures to the bit.

#include "lib/digest/digest.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cfenv>
#include <cmath>

#include "lib/digest/statistics.h"
#include "lib/digest/strides.h"
#include "lib/error.h"

namespace ddp_doctor {
namespace {

constexpr std::size_t kBlock = 16 * 1024;

// The thread belongs to the examined program, which may flush subnormals
// (torch.set_flush_denormal), round otherwise or trap. None of this may change a figure, and no
// flag raised here may remain.
class DefaultFloatingPoint {
 public:
  DefaultFloatingPoint() {
    std::fegetenv(&callers_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatingPoint() { std::fesetenv(&callers_); }
  DefaultFloatingPoint(const DefaultFloatingPoint&) = delete;
  DefaultFloatingPoint& operator=(const DefaultFloatingPoint&) = delete;

 private:
  std::fenv_t callers_;
};

std::array<std::uint8_t, 16> canonical(XXH128_hash_t hash) {
  XXH128_canonical_t bytes;
  XXH128_canonicalFromHash(&bytes, hash);
  return std::to_array(bytes.digest);
}

class Pass {
 public:
  explicit Pass(DType dtype) : dtype_(dtype) { XXH3_128bits_reset(&hash_); }

  void add(const std::byte* block, std::size_t bytes) {
    XXH3_128bits_update(&hash_, block, bytes);
    add_block(dtype_, block, bytes, statistics_);
  }

  TensorDigest finish(std::int64_t numel) const {
    TensorDigest result;
    result.bits = canonical(XXH3_128bits_digest(&hash_));
    result.l2_norm = std::sqrt(statistics_.sum_of_squares);
    result.max_abs = statistics_.max_abs;
    result.nonfinite = statistics_.nonfinite;
    result.numel = numel;
    return result;
  }

 private:
  DType dtype_;
  XXH3_state_t hash_;
  Statistics statistics_;
};

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
                " elements has no data: leave meta and sparse tensors out of the examination");
  }
  return numel;
}

void add_contiguous(Pass& pass, const std::byte* data, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += kBlock) {
    pass.add(data + at, std::min(kBlock, bytes - at));
  }
}

void add_gathered(Pass& pass, const TensorView& tensor) {
  alignas(64) std::byte block[kBlock];
  Gather gather(tensor);
  while (const std::size_t bytes = gather.next(block, kBlock)) pass.add(block, bytes);
}

}  // namespace

TensorDigest digest(const TensorView& tensor) {
  const std::int64_t numel = count_elements(tensor);
  const std::size_t element = element_size(tensor.dtype);
  const DefaultFloatingPoint floating_point;
  Pass pass(tensor.dtype);
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
    if (canonical(XXH3_128bits(tensor.data, bytes)) == probable.bits) return probable;
  }
  return digest(tensor);
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
