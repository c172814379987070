// SPDX-License-Identifier: BSD-3-Clause
// One pass over a tensor's bytes: a 128-bit digest of its bits, and the statistics that a report
// prints.
//
// Whether two replicas agree is decided on the digest alone: it covers the raw bits of the logical
// elements in row-major order, so a strided view and its contiguous copy have equal digests, while
// 0.0 and -0.0, or two NaNs of different payload, do not. The statistics only show how large a
// difference may be; they never decide.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ddp_doctor {

enum class DType : std::uint8_t {
  kFloat32,
  kFloat64,
  kFloat16,
  kBFloat16,
  kInt8,
  kUInt8,
  kInt16,
  kInt32,
  kInt64,
  kBool,
};

// Bytes per element.
std::size_t element_size(DType dtype);
// PyTorch's name without the `torch.` prefix: "float32", "bfloat16", "bool", ...
std::string_view name_of(DType dtype);
// The inverse of name_of(); throws Error on a name that is none of the above.
DType dtype_from_name(std::string_view name);

// A tensor that the caller owns. Sizes and strides count elements, as at::Tensor's do; strides may
// be 0 (expanded) and may have any order. `data` may be null only if there is no element.
struct TensorView {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
  std::span<const std::int64_t> sizes;
  std::span<const std::int64_t> strides;
};

struct TensorDigest {
  // Of the elements' bytes in row-major order, cut into blocks of 8 KiB: XXH3-128 of the only
  // block, or of the blocks' own XXH3-128, each in canonical (big-endian) byte order. So blocks can
  // be hashed in any order.
  std::array<std::uint8_t, 16> bits{};
  // Over the finite elements; of the types of 16 and 32 bits to within 1e-6 of itself, usually
  // 1e-8, and of the others as accumulated in double. 0 for an empty tensor.
  double l2_norm = 0.0;
  double max_abs = 0.0;
  // Elements that are NaN or infinite; always 0 for integers.
  std::int64_t nonfinite = 0;
  std::int64_t numel = 0;
};

// Reads every element once. Thread-safe; allocates nothing for contiguous input.
TensorDigest digest(const TensorView& tensor);
// The same, given the digest of a tensor of the same dtype that probably has the same bits: if it
// has, only the hash is taken, at twice the speed.
TensorDigest digest(const TensorView& tensor, const TensorDigest& probable);

// `bits` as 32 hexadecimal digits.
std::string to_hex(const std::array<std::uint8_t, 16>& bits);

}  // namespace ddp_doctor
