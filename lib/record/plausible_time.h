// SPDX-License-Identifier: BSD-3-Clause
// Times of a damaged record can be any number. Those that are read are bounded, so that their sums
// and differences fit in 64 bits.
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

}  // namespace ddp_doctor
