// SPDX-License-Identifier: BSD-3-Clause
#include "lib/timeline/value_checks.h"

#include <algorithm>
#include <cmath>
#include <set>

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

}  // namespace

void compute_drift(const Timeline& timeline, TimelineStep& step, const KeptTensors* kept) {
  step.drifting.clear();
  if (!step.examined()) return;
  if (step.same_everywhere(Stage::kWeight)) {
    step.weight_drift = 0.0;
    return;
  }
  // Of the tensors that differ, within each set of replicas.
  std::map<std::pair<int, std::size_t>, Spread> spreads;
  std::set<std::pair<int, std::size_t>> readers;  // ranks, with their set, that stand for all: of
                                                  // each group of equal bits the first
  bool known = true;
  bool any = false;
  for (const auto& tensor : timeline.tensors) {
    if (tensor.kind != "parameter" || timeline.rank_local.contains(tensor.id) ||
        timeline.updated_by_some.contains(tensor.id))
      continue;
    const auto& replicas = timeline.replicas_of(tensor.id, Stage::kWeight);
    for (std::size_t set = 0; set < replicas.size(); ++set) {
      const auto& among = replicas[set];
      const auto groups = step.groups(tensor.id, Stage::kWeight, among);
      std::size_t seen = 0;
      for (const auto& group : groups) seen += group.size();
      if (seen == 0) continue;  // no part of this step, or not of this model
      any = true;
      known = known && seen == among.size();
      if (seen != among.size() || groups.size() == 1) continue;
      spreads.emplace(std::pair(tensor.id, set), Spread());
      for (const auto& group : groups) readers.emplace(group.front(), set);
    }
  }
  if (kept == nullptr) {
    known = known && spreads.empty();
    spreads.clear();
  }
  for (const auto& [rank, set] : readers) {
    if (spreads.empty()) break;
    const RankValues values(*kept, rank, step.recorded(rank));
    for (auto entry = spreads.begin(); entry != spreads.end();) {
      auto& [which, spread] = *entry;
      if (which.second != set) {
        ++entry;
        continue;
      }
      const auto replica =
          values.of(timeline.tensors[static_cast<std::size_t>(which.first)], Stage::kWeight);
      if (replica) spread.add(*replica);
      known = known && replica;
      entry = replica ? std::next(entry) : spreads.erase(entry);
    }
  }
  double largest = 0.0;
  for (const auto& [which, spread] : spreads) {
    const double difference = spread.largest();
    step.drifting.push_back({which.first, difference});
    if (std::isnan(difference) || difference > largest) largest = difference;
    if (std::isnan(largest)) break;
  }
  std::stable_sort(step.drifting.begin(), step.drifting.end(), [](const auto& a, const auto& b) {
    return a.max_abs_difference > b.max_abs_difference;
  });
  if (known && any) step.weight_drift = largest;
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
  for (int id : trainable) means[id].resize(static_cast<std::size_t>(tensor_of(id).numel));
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
      const auto& mean = means[id];
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
