// SPDX-License-Identifier: BSD-3-Clause
// A damaged record holds any numbers. Those that are added up are bounded when they are read, so
// that sums and differences fit in 64 bits.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ddp_doctor {

// Nanoseconds since 1970, to 2079.
inline std::int64_t plausible_time(std::int64_t ns) {
  return std::clamp<std::int64_t>(ns, 0, std::int64_t{3} << 60);
}

// At most 18 years, in nanoseconds.
inline std::int64_t plausible_duration(std::int64_t ns) {
  constexpr std::int64_t kMost = std::int64_t{1} << 59;
  return std::clamp(ns, -kMost, kMost);
}

// Of a tensor, or of a call's.
inline std::int64_t plausible_elements(std::int64_t numel) {
  return std::clamp<std::int64_t>(numel, 0, std::int64_t{1} << 38);
}

// How often something happened in a step.
inline std::int64_t plausible_times(std::int64_t count) {
  return std::clamp<std::int64_t>(count, 0, 1 << 20);
}

}  // namespace ddp_doctor
