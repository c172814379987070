#include "lib/timeline/value_checks.h"

#include <algorithm>
#include <cmath>

#include "lib/timeline/drift.h"

namespace ddp_doctor {
namespace {

std::vector<std::uint8_t> values_of(const RecordReader& reader, const std::vector<int>& own_ids,
                                    std::int64_t step, int tensor, Stage stage) {
  return reader.values(step, own_ids[static_cast<std::size_t>(tensor)], stage);
}

std::vector<std::vector<double>> replicas_of(const Readers& readers, const OwnIds& own_ids,
                                             const TimelineStep& step, const TensorInfo& tensor,
                                             Stage stage) {
  std::vector<std::vector<double>> replicas;
  for (const auto& [rank, reader] : readers) {
    const auto bytes = values_of(reader, own_ids.at(rank), step.recorded(rank), tensor.id, stage);
    const auto dtype = dtype_from_name(tensor.dtype);
    if (bytes.size() != static_cast<std::size_t>(tensor.numel) * element_size(dtype)) return {};
    replicas.push_back(to_doubles(bytes, dtype));
  }
  return replicas;
}

}  // namespace

void compute_drift(const Timeline& timeline, TimelineStep& step, const OwnIds& own_ids,
                   const Readers* readers) {
  if (!step.examined()) return;
  step.drifting.clear();
  double largest = 0.0;
  bool known = true;
  bool any = false;
  for (const auto& tensor : timeline.tensors) {
    if (tensor.kind != "parameter") continue;
    const auto groups = step.groups(tensor.id, Stage::kWeight);
    std::size_t seen = 0;
    for (const auto& group : groups) seen += group.size();
    if (seen == 0) continue;  // no part of this step
    any = true;
    if (seen != step.ranks.size()) {
      known = false;
      continue;
    }
    if (groups.size() == 1) continue;
    const auto replicas = readers != nullptr
                              ? replicas_of(*readers, own_ids, step, tensor, Stage::kWeight)
                              : std::vector<std::vector<double>>{};
    if (replicas.empty()) {
      known = false;
      continue;
    }
    const double difference = max_abs_difference(replicas);
    step.drifting.push_back({tensor.id, difference});
    if (std::isnan(difference) || difference > largest) largest = difference;
    if (std::isnan(largest)) break;
  }
  std::stable_sort(step.drifting.begin(), step.drifting.end(), [](const auto& a, const auto& b) {
    return a.max_abs_difference > b.max_abs_difference;
  });
  if (known && any) step.weight_drift = largest;
}

std::optional<MeanCheck> check_mean(const Timeline& timeline, const TimelineStep& step,
                                    const OwnIds& own_ids, const Readers& readers) {
  double error = 0.0;
  double norm = 0.0;
  bool any = false;
  for (int id : timeline.trainable()) {
    const auto& tensor = timeline.tensors[static_cast<std::size_t>(id)];
    const auto dtype = dtype_from_name(tensor.dtype);
    std::vector<double> mean(static_cast<std::size_t>(tensor.numel), 0.0);
    for (const auto& [rank, reader] : readers) {
      if (step.find(rank, id, Stage::kLocalGradient) == nullptr) {
        const auto* usage = step.usage(rank, id);
        if (usage != nullptr && usage->used) return {};  // it had one, and it was not seen
        continue;
      }
      const auto local = to_doubles(
          values_of(reader, own_ids.at(rank), step.recorded(rank), id, Stage::kLocalGradient),
          dtype);
      if (local.size() != mean.size()) return {};
      for (std::size_t i = 0; i < mean.size(); ++i)
        mean[i] += local[i] / static_cast<double>(readers.size());
    }
    for (const auto& [rank, reader] : readers) {
      // Before anything else, such as clipping, changed it, where a probe could look there.
      const Stage stage = step.find(rank, id, Stage::kReducedGradient) != nullptr
                              ? Stage::kReducedGradient
                              : Stage::kGradient;
      if (step.find(rank, id, stage) == nullptr) continue;
      const auto gradient =
          to_doubles(values_of(reader, own_ids.at(rank), step.recorded(rank), id, stage), dtype);
      if (gradient.size() != mean.size()) return {};
      any = true;
      for (std::size_t i = 0; i < mean.size(); ++i) {
        error += (gradient[i] - mean[i]) * (gradient[i] - mean[i]);
        norm += mean[i] * mean[i];
      }
    }
  }
  if (!any || norm == 0.0) return {};
  return MeanCheck{step.number, std::sqrt(error / norm)};
}

}  // namespace ddp_doctor
