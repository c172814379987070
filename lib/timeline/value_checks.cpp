// SPDX-License-Identifier: BSD-3-Clause
#include "lib/timeline/value_checks.h"

#include <algorithm>
#include <cmath>

#include "lib/record/reader.h"
#include "lib/timeline/drift.h"

namespace ddp_doctor {
namespace {

// The kept values of one rank in one step.
class RankValues {
 public:
  RankValues(const KeptTensors& kept, int rank, std::int64_t step)
      : reader_(kept.files.at(rank)), own_ids_(kept.own_ids.at(rank)), step_(step) {}

  // Nothing if not all of them were kept.
  std::optional<std::vector<double>> of(const TensorInfo& tensor, Stage stage) const {
    const auto dtype = dtype_from_name(tensor.dtype);
    const auto bytes = reader_.values(step_, own_ids_[static_cast<std::size_t>(tensor.id)], stage);
    if (bytes.size() != static_cast<std::size_t>(tensor.numel) * element_size(dtype)) return {};
    return to_doubles(bytes, dtype);
  }

 private:
  RecordReader reader_;
  const std::vector<int>& own_ids_;
  std::int64_t step_;
};

// Replicas of one tensor that differ: all of them, or those along one dimension of the mesh.
struct Differing {
  int tensor = 0;
  std::optional<std::size_t> dimension;
  Spread spread;
  bool known = true;
};

// The largest difference, of those along a dimension or of all.
struct Largest {
  bool known = true;   // the values of all that differ
  double value = 0.0;  // NaN is larger than everything

  void add(double difference) {
    if (!std::isnan(value) && (std::isnan(difference) || difference > value)) value = difference;
  }
};

// What one step's weights show, tensor by tensor.
class DriftOfStep {
 public:
  DriftOfStep(const Timeline& timeline, const TimelineStep& step)
      : timeline_(timeline), step_(step), along_(timeline.dimensions.size()) {
    for (const auto& tensor : timeline.tensors) {
      if (tensor.kind != "parameter" || timeline.rank_local.contains(tensor.id) ||
          timeline.updated_by_some.contains(tensor.id))
        continue;
      for (const auto& among : timeline.replicas_of(tensor.id, Stage::kWeight))
        look(tensor.id, among);
    }
  }

  void read(const KeptTensors& kept) {
    for (const auto& [rank, places] : readers_) {
      const RankValues values(kept, rank, step_.recorded(rank));
      int tensor = -1;
      std::optional<std::vector<double>> replica;
      for (const std::size_t place : places) {
        auto& one = differing_[place];
        if (one.tensor != tensor) {
          tensor = one.tensor;
          replica = values.of(timeline_.tensors[static_cast<std::size_t>(tensor)], Stage::kWeight);
        }
        if (replica) one.spread.add(*replica);
        one.known = one.known && replica;
      }
    }
  }

  void tell(bool values, TimelineStep& step) {
    for (const auto& one : differing_) {
      Largest& largest = one.dimension ? along_[*one.dimension] : all_;
      largest.known = largest.known && values && one.known;
      if (!values || !one.known) continue;
      const double difference = one.spread.largest();
      largest.add(difference);
      if (!one.dimension) step.drifting.push_back({one.tensor, difference});
    }
    std::stable_sort(step.drifting.begin(), step.drifting.end(), [](const auto& a, const auto& b) {
      return a.max_abs_difference > b.max_abs_difference;
    });
    const auto told = [&](const Largest& largest) {
      return any_ && complete_ && largest.known ? std::optional(largest.value) : std::nullopt;
    };
    step.weight_drift = told(all_);
    for (const auto& largest : along_) step.drift_along.push_back(told(largest));
  }

 private:
  void look(int tensor, const Ranks& among) {
    const auto groups = step_.groups(tensor, Stage::kWeight, among);
    std::size_t seen = 0;
    for (const auto& group : groups) seen += group.size();
    if (seen == 0) return;  // no part of this step, or not of this model
    any_ = true;
    complete_ = complete_ && seen == among.size();
    if (seen != among.size() || groups.size() < 2) return;
    add(tensor, {}, groups, among);
    for (std::size_t i = 0; i < timeline_.dimensions.size(); ++i) {
      for (const auto& along : timeline_.dimensions[i].groups) {
        if (along.size() > 1 &&
            std::includes(among.begin(), among.end(), along.begin(), along.end()))
          add(tensor, i, groups, along);
      }
    }
  }

  // `alike`: ranks with equal bits, of which the first stands for all.
  void add(int tensor, std::optional<std::size_t> dimension, const std::vector<Ranks>& alike,
           const Ranks& among) {
    Ranks first;
    for (const auto& group : alike) {
      const bool here = std::any_of(group.begin(), group.end(), [&](int rank) {
        return std::binary_search(among.begin(), among.end(), rank);
      });
      if (here) first.push_back(group.front());
    }
    if (first.size() < 2) return;
    for (const int rank : first) readers_[rank].push_back(differing_.size());
    differing_.push_back({tensor, dimension, {}});
  }

  const Timeline& timeline_;
  const TimelineStep& step_;
  std::vector<Differing> differing_;
  std::map<int, std::vector<std::size_t>> readers_;  // whose values are read for which of them
  bool any_ = false;                                 // replicas were seen
  bool complete_ = true;                             // wherever some were, all of them
  Largest all_;
  std::vector<Largest> along_;
};

}  // namespace

void compute_drift(const Timeline& timeline, TimelineStep& step, const KeptTensors* kept) {
  step.drifting.clear();
  step.drift_along.clear();
  if (!step.examined()) return;
  if (step.same_everywhere(Stage::kWeight)) {
    step.weight_drift = 0.0;
    step.drift_along.assign(timeline.dimensions.size(), 0.0);
    return;
  }
  DriftOfStep drift(timeline, step);
  if (kept != nullptr) drift.read(*kept);
  drift.tell(kept != nullptr, step);
}

std::optional<MeanCheck> check_mean(const Timeline& timeline, const TimelineStep& step,
                                    const KeptTensors& kept) {
  if (!timeline.placed().of.empty()) return {};
  const auto trainable = timeline.trainable();
  const auto tensor_of = [&](int id) -> const TensorInfo& {
    return timeline.tensors[static_cast<std::size_t>(id)];
  };
  // Before anything else, such as clipping, changed it, if the probe recorded it.
  const auto synchronized = [&](int rank, int id) {
    return step.find(rank, id, Stage::kReducedGradient) ? Stage::kReducedGradient
                                                        : Stage::kGradient;
  };
  // Where neither a reducer nor a collective changed it, the optimizer got it.
  const auto local_stage = [&](int rank, int id) -> std::optional<Stage> {
    if (step.find(rank, id, Stage::kLocalGradient)) return Stage::kLocalGradient;
    const auto* record = step.at(rank);
    const bool untouched = record != nullptr && record->collectives == 0 &&
                           !step.find(rank, id, Stage::kReducedGradient) &&
                           !step.sample(rank, id, Stage::kLocalGradient);
    if (untouched && step.find(rank, id, Stage::kGradient)) return Stage::kGradient;
    return {};
  };
  std::map<int, std::vector<double>> means;
  for (const auto& [rank, file] : kept.files) {
    const RankValues values(kept, rank, step.recorded(rank));
    for (int id : trainable) {
      const auto stage = local_stage(rank, id);
      if (!stage) {
        const auto usage = step.usage(rank, id);
        if (usage && usage->used) return {};  // it had one, and it was not seen
        continue;
      }
      const auto local = values.of(tensor_of(id), *stage);
      if (!local) return {};
      auto& mean = means[id];
      mean.resize(local->size());
      for (std::size_t i = 0; i < mean.size(); ++i)
        mean[i] += (*local)[i] / static_cast<double>(kept.files.size());
    }
  }
  double error = 0.0;
  double norm = 0.0;
  bool any = false;
  for (const auto& [rank, file] : kept.files) {
    const RankValues values(kept, rank, step.recorded(rank));
    for (int id : trainable) {
      const Stage stage = synchronized(rank, id);
      if (!step.find(rank, id, stage)) continue;
      const auto gradient = values.of(tensor_of(id), stage);
      if (!gradient) return {};
      any = true;
      auto& mean = means[id];
      mean.resize(gradient->size());
      for (std::size_t i = 0; i < mean.size(); ++i) {
        error += ((*gradient)[i] - mean[i]) * ((*gradient)[i] - mean[i]);
        norm += mean[i] * mean[i];
      }
    }
  }
  if (!any || norm == 0.0) return {};
  return MeanCheck{step.number, std::sqrt(error / norm)};
}

}  // namespace ddp_doctor
