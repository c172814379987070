// SPDX-License-Identifier: BSD-3-Clause
#include "lib/timeline/magnitudes.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

namespace ddp_doctor {
namespace {

// Of a float32. What is smaller than this part of all gradients is what rounding left of zero, such
// as the gradient of a bias before a normalization.
constexpr double kEpsilon = std::numeric_limits<float>::epsilon();

double square(double value) { return value * value; }

double length_of_difference(const SampledValues& a, const SampledValues& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) sum += square(a[i] - b[i]);
  return std::sqrt(sum);
}

// Over all tensors of a stage, of the rank where it is largest.
double whole_norm(const std::map<std::string, Magnitudes::Seen>& step, Stage stage) {
  std::vector<double> squares;
  for (const auto& [name, seen] : step) {
    const auto& ranks = seen.at(stage);
    squares.resize(std::max(squares.size(), ranks.size()));
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (ranks[rank]) squares[rank] += square(ranks[rank]->norm);
    }
  }
  return squares.empty() ? 0.0 : std::sqrt(*std::max_element(squares.begin(), squares.end()));
}

std::optional<Distance> distance(const Magnitudes::ByRank& a, const Magnitudes::ByRank& b,
                                 double rounding) {
  std::optional<Distance> farthest;
  for (std::size_t rank = 0; rank < std::min(a.size(), b.size()); ++rank) {
    if (!a[rank] || !b[rank]) continue;
    if (!farthest) farthest.emplace();
    const double scale = std::max({a[rank]->norm, b[rank]->norm, rounding});
    if (scale == 0.0) continue;
    farthest->norm = std::max(farthest->norm, std::abs(a[rank]->norm - b[rank]->norm) / scale);
    farthest->sample =
        std::max(farthest->sample, length_of_difference(a[rank]->sample, b[rank]->sample) / scale);
  }
  return farthest;
}

}  // namespace

std::function<Magnitudes()> Magnitudes::later(const Timeline& timeline) {
  std::vector<std::pair<std::int64_t, std::shared_ptr<const StepDetails>>> steps;
  for (const auto& step : timeline.steps) {
    if (step.details != nullptr) steps.emplace_back(step.number, step.details);
  }
  std::vector<std::pair<int, std::string>> parameters;
  for (const auto& tensor : timeline.tensors) {
    if (tensor.kind == "parameter") parameters.emplace_back(tensor.id, tensor.name);
  }
  return [steps = std::move(steps), parameters = std::move(parameters),
          ranks = static_cast<std::size_t>(timeline.run.world_size)] {
    Steps measured;
    for (const auto& [number, details] : steps) {
      for (const auto& [id, name] : parameters) {
        const auto read = [&, id = id, &details = details](Stage stage) {
          ByRank of(ranks);
          for (std::size_t i = 0; i < ranks; ++i) {
            const int rank = static_cast<int>(i);
            const auto digest = details->digest(rank, id, stage);
            if (!digest) continue;
            of[i] = Measured{digest->l2_norm, {}};
            if (const auto sample = details->sample(rank, id, stage))
              of[i]->sample = sample->values;
          }
          return of;
        };
        measured[number].emplace(name, Seen{read(Stage::kGradient), read(Stage::kWeight)});
      }
    }
    return Magnitudes(std::move(measured));
  };
}

Distances::Distances(const Magnitudes& a, const Magnitudes& b) {
  for (const auto& [number, in_a] : a.steps()) {
    const auto in_b = b.steps().find(number);
    if (in_b == b.steps().end()) continue;
    for (const Stage stage : {Stage::kGradient, Stage::kWeight}) {
      const double rounding = kEpsilon * whole_norm(in_a, stage);
      for (const auto& [name, seen] : in_a) {
        const auto other = in_b->second.find(name);
        if (other == in_b->second.end()) continue;
        if (const auto found = distance(seen.at(stage), other->second.at(stage), rounding))
          at(stage)[number].emplace(name, *found);
      }
    }
  }
}

}  // namespace ddp_doctor
