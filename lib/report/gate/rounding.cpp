// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/gate/rounding.h"

#include <algorithm>
#include <set>
#include <vector>

namespace ddp_doctor {
namespace {

// The norm of a digest is exact to this part of itself (lib/digest/digest.h).
constexpr double kLeast = 1e-7;

double median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Distance larger(const Distance& a, const Distance& b) {
  return {std::max(a.norm, b.norm), std::max(a.sample, b.sample)};
}

// One parameter's distance may be small by chance; then that of most parameters counts.
Distance of_most(const std::map<std::string, Distance>& parameters) {
  std::vector<double> norms, samples;
  for (const auto& [name, distance] : parameters) {
    norms.push_back(distance.norm);
    samples.push_back(distance.sample);
  }
  return {median(std::move(norms)), median(std::move(samples))};
}

Distance times(double factor, const Distance& distance) {
  return {factor * distance.norm, factor * distance.sample};
}

double in_parts(const Distance& distance, const Distance& limit) {
  return std::max(distance.norm / limit.norm, distance.sample / limit.sample);
}

}  // namespace

RoundingLimits::RoundingLimits(const Distances& rounding) {
  for (const Stage stage : {Stage::kGradient, Stage::kWeight}) {
    Distance most{kLeast, kLeast};
    std::map<std::string, Distance> own;
    for (const auto& [step, parameters] : rounding.at(stage)) {
      most = larger(most, of_most(parameters));
      for (const auto& [name, distance] : parameters) own[name] = larger(own[name], distance);
      for (const auto& [name, distance] : own)
        limits_.at(stage)[step][name] = times(kRoundingTimes, larger(most, distance));
    }
  }
}

Distance RoundingLimits::at(Stage stage, std::int64_t step, const std::string& parameter) const {
  const auto& steps = limits_.at(stage);
  const auto after = steps.upper_bound(step);
  if (after != steps.begin()) {
    const auto& parameters = std::prev(after)->second;
    if (const auto found = parameters.find(parameter); found != parameters.end())
      return found->second;
  }
  return times(kRoundingTimes, {kLeast, kLeast});
}

RoundingComparison beyond_rounding(const Distances& seen, const Distances& rounding) {
  const RoundingLimits limits(rounding);
  RoundingComparison result;
  std::set<std::int64_t> steps;
  for (const Stage stage : {Stage::kGradient, Stage::kWeight}) {
    for (const auto& [step, parameters] : seen.at(stage)) {
      if (step > 0) steps.insert(step);
      BeyondRounding beyond{stage, step, {}, {}, 0.0};
      for (const auto& [name, distance] : parameters) {
        const double parts = in_parts(distance, limits.at(stage, step, name));
        result.most = std::max(result.most, parts);
        if (parts <= 1.0) continue;
        beyond.parameters.emplace(name, distance);
        if (parts > beyond.times) {
          beyond.times = parts;
          beyond.most = name;
        }
      }
      // Gradients come before weights: whichever differs first.
      if (!beyond.parameters.empty() && (!result.first || step < result.first->step))
        result.first = std::move(beyond);
    }
  }
  result.steps = steps.size();
  return result;
}

}  // namespace ddp_doctor
