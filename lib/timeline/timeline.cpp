#include "lib/timeline/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <regex>

#include "lib/error.h"
#include "lib/timeline/drift.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;

// Readers of the ranks that have a record, for the values behind the digests.
using Readers = std::map<int, RecordReader>;

std::vector<std::vector<double>> replicas_of(const Readers& readers, std::int64_t step,
                                             const TensorInfo& tensor, Stage stage) {
  std::vector<std::vector<double>> replicas;
  for (const auto& [rank, reader] : readers) {
    const auto bytes = reader.values(step, tensor.id, stage);
    const auto dtype = dtype_from_name(tensor.dtype);
    if (bytes.size() != static_cast<std::size_t>(tensor.numel) * element_size(dtype)) return {};
    replicas.push_back(to_doubles(bytes, dtype));
  }
  return replicas;
}

void compute_drift(Timeline& timeline, TimelineStep& step, const Readers* readers) {
  if (!step.complete()) return;
  double largest = 0.0;
  bool known = true;
  for (const auto& tensor : timeline.tensors) {
    if (tensor.kind != "parameter") continue;
    const auto groups = step.groups(tensor.id, Stage::kWeight);
    std::size_t seen = 0;
    for (const auto& group : groups) seen += group.size();
    if (seen != step.ranks.size()) {
      known = false;
      continue;
    }
    if (groups.size() == 1) continue;
    const auto replicas = readers != nullptr
                              ? replicas_of(*readers, step.number, tensor, Stage::kWeight)
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
  if (known) step.weight_drift = largest;
}

// ||synchronized - mean(local)|| / ||mean(local)||, over all parameters of `step` together. A rank
// without a local gradient contributes zeros, as DistributedDataParallel has it.
std::optional<MeanCheck> check_mean(const Timeline& timeline, const TimelineStep& step,
                                    const Readers& readers) {
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
      const auto local = to_doubles(reader.values(step.number, id, Stage::kLocalGradient), dtype);
      if (local.size() != mean.size()) return {};
      for (std::size_t i = 0; i < mean.size(); ++i)
        mean[i] += local[i] / static_cast<double>(readers.size());
    }
    for (const auto& [rank, reader] : readers) {
      if (step.find(rank, id, Stage::kGradient) == nullptr) continue;
      const auto gradient = to_doubles(reader.values(step.number, id, Stage::kGradient), dtype);
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

std::optional<int> rank_of(const fs::path& file) {
  static const std::regex pattern("rank-([0-9]{5,})\\.sqlite");
  std::smatch match;
  const std::string name = file.filename().string();
  if (!std::regex_match(name, match, pattern)) return {};
  return std::stoi(match[1]);
}

}  // namespace

bool TimelineStep::complete() const {
  return std::none_of(ranks.begin(), ranks.end(), [](const auto* rank) { return rank == nullptr; });
}

void TimelineStep::set(int rank, const StepRecord* record, std::size_t tensors) {
  const auto index = static_cast<std::size_t>(rank);
  slots_.resize(ranks.size());
  ranks[index] = record;
  slots_[index].resize(tensors);
  const auto known = [&](int tensor) {
    return tensor >= 0 && static_cast<std::size_t>(tensor) < tensors;
  };
  for (const auto& observation : record->observations) {
    if (!known(observation.tensor)) continue;
    slots_[index][static_cast<std::size_t>(observation.tensor)]
        .by_stage[static_cast<int>(observation.stage)] = &observation;
  }
  for (const auto& usage : record->usages) {
    if (known(usage.tensor)) slots_[index][static_cast<std::size_t>(usage.tensor)].usage = &usage;
  }
}

const TimelineStep::Slots* TimelineStep::slots(int rank, int tensor) const {
  const auto index = static_cast<std::size_t>(rank);
  if (index >= slots_.size() || static_cast<std::size_t>(tensor) >= slots_[index].size())
    return nullptr;
  return &slots_[index][static_cast<std::size_t>(tensor)];
}

const Observation* TimelineStep::find(int rank, int tensor, Stage stage) const {
  const auto* found = slots(rank, tensor);
  return found == nullptr ? nullptr : found->by_stage[static_cast<int>(stage)];
}

const Usage* TimelineStep::usage(int rank, int tensor) const {
  const auto* found = slots(rank, tensor);
  return found == nullptr ? nullptr : found->usage;
}

std::vector<std::vector<int>> TimelineStep::groups(int tensor, Stage stage) const {
  std::map<std::array<std::uint8_t, 16>, std::vector<int>> by_bits;
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
    if (const auto* seen = find(rank, tensor, stage)) by_bits[seen->digest.bits].push_back(rank);
  }
  std::vector<std::vector<int>> groups;
  for (auto& [bits, members] : by_bits) groups.push_back(std::move(members));
  std::sort(groups.begin(), groups.end());
  return groups;
}

Timeline::Timeline() = default;
Timeline::Timeline(Timeline&&) noexcept = default;
Timeline& Timeline::operator=(Timeline&&) noexcept = default;
Timeline::~Timeline() = default;

Timeline Timeline::merge(RunInfo run, std::vector<RankRecord> records) {
  Timeline timeline;
  timeline.run = std::move(run);
  for (auto& record : records) {
    const int rank = record.header.rank;
    if (record.header.world_size != timeline.run.world_size) {
      throw Error(fmt::format(
          "the record of rank {} is of a run with {} ranks, this run has {}: give the folders of "
          "one run only",
          rank, record.header.world_size, timeline.run.world_size));
    }
    if (rank < 0 || rank >= timeline.run.world_size || timeline.records_.contains(rank)) {
      throw Error(fmt::format(
          "rank {} is recorded twice or does not belong to a run of {} ranks: give the folders of "
          "one run only",
          rank, timeline.run.world_size));
    }
    timeline.records_[rank] = std::make_unique<RankRecord>(std::move(record));
  }
  if (timeline.records_.empty()) throw Error("there is no record of any rank");

  timeline.tensors = timeline.records_.begin()->second->tensors;
  std::map<std::int64_t, TimelineStep> steps;
  std::int64_t last_step = 0;
  for (const auto& [rank, record] : timeline.records_) {
    for (const auto& step : record->steps) {
      auto& merged = steps[step.step];
      merged.number = step.step;
      merged.ranks.resize(static_cast<std::size_t>(timeline.run.world_size), nullptr);
      merged.set(rank, &step, record->tensors.size());
      last_step = std::max(last_step, step.step);
    }
  }
  for (auto& [number, step] : steps) {
    compute_drift(timeline, step, nullptr);
    timeline.steps.push_back(std::move(step));
  }

  for (int rank = 0; rank < timeline.run.world_size; ++rank) {
    const auto* record = timeline.record(rank);
    if (record != nullptr) {
      for (const auto& event : record->events) {
        if (event.kind == "warning")
          timeline.notes.push_back(fmt::format("not examined: rank {}: {}", rank, event.text));
      }
    }
    if (record == nullptr) {
      timeline.notes.push_back(fmt::format("rank {} left no record", rank));
    } else if (const auto last = record->steps.empty() ? 0 : record->steps.back().step;
               last < last_step) {
      timeline.notes.push_back(fmt::format("rank {} ended after step {}, others went on to step {}",
                                           rank, last, last_step));
    }
  }
  return timeline;
}

Timeline Timeline::load(const fs::path& folder, RunInfo run) {
  Readers readers;
  std::vector<RankRecord> records;
  std::vector<std::string> refusals;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(folder, failure)) {
    const auto rank = rank_of(entry.path());
    if (!rank) continue;
    try {
      RecordReader reader(entry.path());
      records.push_back(reader.read());
      readers.emplace(*rank, std::move(reader));
    } catch (const Error& error) {
      refusals.push_back(error.what());
    }
  }
  if (failure) throw Error(fmt::format("{}: {}", folder.string(), failure.message()));
  if (records.empty()) {
    throw Error(
        refusals.empty()
            ? fmt::format(
                  "{}: no rank-*.sqlite in it; give a folder that `ddp-doctor run --out` wrote",
                  folder.string())
            : refusals.front());
  }
  Timeline timeline = merge(std::move(run), std::move(records));
  for (auto& refusal : refusals) timeline.notes.push_back(std::move(refusal));

  const bool all = static_cast<int>(readers.size()) == timeline.run.world_size;
  for (auto& step : timeline.steps) {
    if (all && !step.weight_drift) compute_drift(timeline, step, &readers);
  }
  const auto* first = timeline.step(1);
  if (all && first != nullptr && first->complete())
    timeline.mean_check = check_mean(timeline, *first, readers);
  return timeline;
}

const RankRecord* Timeline::record(int rank) const {
  const auto found = records_.find(rank);
  return found == records_.end() ? nullptr : found->second.get();
}

const TimelineStep* Timeline::step(std::int64_t number) const {
  for (const auto& step : steps) {
    if (step.number == number) return &step;
  }
  return nullptr;
}

std::vector<int> Timeline::trainable() const {
  std::vector<int> ids;
  for (const auto& tensor : tensors) {
    if (tensor.kind == "parameter" && tensor.trainable) ids.push_back(tensor.id);
  }
  return ids;
}

std::optional<std::string> Timeline::ddp_field(const std::string& key) const {
  for (const auto& field : records_.begin()->second->ddp_fields) {
    if (field.moment == "construction" && field.key == key) return field.value;
  }
  return {};
}

const Event* Timeline::error(int rank) const {
  const auto* found = record(rank);
  if (found == nullptr) return nullptr;
  for (const auto& event : found->events) {
    if (event.kind == "error") return &event;
  }
  return nullptr;
}

}  // namespace ddp_doctor
