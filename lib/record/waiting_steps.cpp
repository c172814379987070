// SPDX-License-Identifier: BSD-3-Clause
#include "lib/record/waiting_steps.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <type_traits>

#include "lib/record/plausible.h"

namespace ddp_doctor {
namespace {

struct Place {
  std::int64_t number;  // of the step, plus one; 0: free, or being written
  double loss;
  double scale;
  std::int64_t started_ns;
  std::int64_t duration_ns;
  std::int64_t probe_ns;
  std::int64_t collective_bytes;
  std::int32_t backwards;
  std::int32_t unsynchronized_backwards;
  std::int32_t forwards_through_wrapper;
  std::int32_t forwards_around_wrapper;
  std::int32_t collectives;
  std::int32_t optimizer;
  // Flags, as bytes: a damaged file may have any value there, which no bool may have.
  std::uint8_t has_loss;
  std::uint8_t has_scale;
  std::uint8_t skipped;
  std::array<char, WaitingSteps::kLongestTrace + 1> trace;
};
using Places = std::array<Place, WaitingSteps::kMax>;
static_assert(std::is_trivially_copyable_v<Places> && sizeof(Places) <= WaitingSteps::kBytes);

StepRecord step_of(const Place& p) {
  StepRecord s;
  s.step = p.number - 1;
  if (p.has_loss != 0) s.loss = p.loss;
  if (p.has_scale != 0) s.scale = p.scale;
  s.started_ns = plausible_time(p.started_ns);
  s.duration_ns = plausible_duration(p.duration_ns);
  s.probe_ns = plausible_duration(p.probe_ns);
  s.collective_bytes = p.collective_bytes;
  s.backwards = p.backwards;
  s.unsynchronized_backwards = p.unsynchronized_backwards;
  s.forwards_through_wrapper = p.forwards_through_wrapper;
  s.forwards_around_wrapper = p.forwards_around_wrapper;
  s.collectives = p.collectives;
  s.optimizer = p.optimizer;
  s.examined = false;
  s.skipped = p.skipped != 0;
  s.trace.assign(p.trace.data(), ::strnlen(p.trace.data(), p.trace.size()));
  return s;
}

}  // namespace

bool WaitingSteps::add(const StepRecord& s) {
  const bool looked_at = s.examined || s.recorded_step || !s.calls.empty() || !s.samples.empty() ||
                         !s.observations.empty() || !s.usages.empty() || !s.values.empty();
  if (looked_at || s.trace.size() > kLongestTrace || steps_.size() == kMax) return false;
  steps_.push_back(s);
  Place& p = (*static_cast<Places*>(map_.data()))[steps_.size() - 1];
  store(p.number, std::int64_t{0});
  p.loss = s.loss.value_or(0.0);
  p.scale = s.scale.value_or(0.0);
  p.started_ns = s.started_ns;
  p.duration_ns = s.duration_ns;
  p.probe_ns = s.probe_ns;
  p.collective_bytes = s.collective_bytes;
  p.backwards = s.backwards;
  p.unsynchronized_backwards = s.unsynchronized_backwards;
  p.forwards_through_wrapper = s.forwards_through_wrapper;
  p.forwards_around_wrapper = s.forwards_around_wrapper;
  p.collectives = s.collectives;
  p.optimizer = s.optimizer;
  p.has_loss = s.loss.has_value();
  p.has_scale = s.scale.has_value();
  p.skipped = s.skipped;
  p.trace[s.trace.copy(p.trace.data(), kLongestTrace)] = '\0';
  store_last(p.number, s.step + 1);
  return true;
}

void WaitingSteps::clear() noexcept {
  for (std::size_t i = 0; i < steps_.size(); ++i)
    store((*static_cast<Places*>(map_.data()))[i].number, std::int64_t{0});
  steps_.clear();
}

std::vector<StepRecord> read_waiting_steps(const std::filesystem::path& file, std::int64_t last) {
  Places places, again;
  // While the rank writes, a reader may see parts of two steps.
  int attempts = 0;
  do {
    if (!read_bytes(file, &places, sizeof places) || !read_bytes(file, &again, sizeof again) ||
        ++attempts == 10)
      return {};
  } while (std::memcmp(&places, &again, sizeof places) != 0);
  std::vector<StepRecord> steps;
  std::sort(places.begin(), places.end(),
            [](const Place& a, const Place& b) { return a.number < b.number; });
  for (const Place& place : places) {
    if (place.number <= 0 || place.number - 1 <= last) continue;
    if (last != std::numeric_limits<std::int64_t>::min() && place.number - 1 != last + 1) break;
    steps.push_back(step_of(place));
    last = steps.back().step;
  }
  return steps;
}

}  // namespace ddp_doctor
