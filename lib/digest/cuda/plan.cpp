// SPDX-License-Identifier: BSD-3-Clause
#include "lib/digest/cuda/plan.h"

#include "lib/digest/kernel.h"

namespace ddp_doctor::cuda {
namespace {

static_assert(kBlockBytes == kBlock && kSamples == kSamplePositions);
static_assert(kBool == static_cast<int>(DType::kBool) &&
              kBFloat16 == static_cast<int>(DType::kBFloat16));

std::size_t rounded(std::size_t bytes) { return (bytes + 15) / 16 * 16; }

// Canonical byte order, as XXH128_canonicalFromHash() has it.
std::array<std::uint8_t, 16> canonical(const DeviceBlockDigest& result) {
  std::array<std::uint8_t, 16> bits;
  for (std::size_t i = 0; i < 8; ++i) {
    bits[i] = static_cast<std::uint8_t>(result.high >> (56 - 8 * i));
    bits[8 + i] = static_cast<std::uint8_t>(result.low >> (56 - 8 * i));
  }
  return bits;
}

}  // namespace

Plan::Plan(std::span<const DeviceTensor> tensors, bool copy) : copy_(copy) {
  for (const auto& tensor : tensors) {
    Place place{tensor, 0, bytes_, 0, 0};
    const std::size_t bytes = bytes_of(place);
    place.blocks = bytes / kBlock;
    place.rest = rounded(place.digests + place.blocks * sizeof(DeviceBlockDigest));
    place.copy = place.rest + kBlock + 8 * kSamplePositions;
    bytes_ = place.copy + (copy ? rounded(bytes) : 0);
    places_.push_back(place);
  }
}

std::size_t Plan::bytes_of(const Place& place) const {
  return static_cast<std::size_t>(place.tensor.numel) * element_size(place.tensor.dtype);
}

void Plan::write_launch(std::size_t number, std::byte* found, Launch& launch) const {
  launch.count = launch.units = 0;
  const std::size_t first = number * kTensorsInLaunch;
  for (std::size_t i = first; i < places_.size() && launch.count < kTensorsInLaunch; ++i) {
    const Place& place = places_[i];
    Tensor& tensor = launch.tensors[launch.count++];
    tensor.data = static_cast<const std::uint8_t*>(place.tensor.data);
    tensor.digests = reinterpret_cast<DeviceBlockDigest*>(found + place.digests);
    tensor.rest = reinterpret_cast<std::uint8_t*>(found + place.rest);
    tensor.copy = copy_ ? reinterpret_cast<std::uint8_t*>(found + place.copy) : nullptr;
    tensor.numel = place.tensor.numel;
    tensor.first_unit = launch.units;
    tensor.blocks = static_cast<std::uint32_t>(place.blocks);
    tensor.type = static_cast<std::uint8_t>(place.tensor.dtype);
    tensor.element = static_cast<std::uint8_t>(element_size(place.tensor.dtype));
    launch.units += tensor.blocks + 1;
  }
}

DeviceDigest Plan::result(std::size_t i, const std::byte* found) const {
  const Place& place = places_.at(i);
  const auto& [data, dtype, numel] = place.tensor;
  std::vector<BlockDigest> blocks(place.blocks);
  const auto* digests = reinterpret_cast<const DeviceBlockDigest*>(found + place.digests);
  for (std::size_t block = 0; block < place.blocks; ++block) {
    const DeviceBlockDigest& result = digests[block];
    blocks[block] = {canonical(result), {result.squares, result.max_abs, result.nonfinite}};
  }
  const std::size_t bytes = bytes_of(place);
  DeviceDigest seen;
  seen.digest =
      digest_of_blocks(dtype, blocks, {found + place.rest, bytes - place.blocks * kBlock}, numel);
  for (std::int64_t k = 0; k < kSamples && k < numel; ++k)
    seen.samples.push_back(as_double(found + place.rest + kBlock + 8 * k, dtype));
  if (copy_) seen.copy = {found + place.copy, bytes};
  return seen;
}

}  // namespace ddp_doctor::cuda
