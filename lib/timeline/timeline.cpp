#include "lib/timeline/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <regex>
#include <set>

#include "lib/error.h"
#include "lib/record/writer.h"
#include "lib/timeline/drift.h"
#include "lib/timeline/private_steps.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;

// Readers of the ranks that have a record, for the values behind the digests.
using Readers = std::map<int, RecordReader>;

// A tensor's id in each rank's own record.
using OwnIds = std::map<int, std::vector<int>>;

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

// ||synchronized - mean(local)|| / ||mean(local)||, over all parameters of `step` together. A rank
// without a local gradient contributes zeros, as DistributedDataParallel has it.
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

std::optional<int> rank_of(const fs::path& file) {
  static const std::regex pattern("rank-([0-9]{5,})\\.sqlite");
  std::smatch match;
  const std::string name = file.filename().string();
  if (!std::regex_match(name, match, pattern)) return {};
  return std::stoi(match[1]);
}

}  // namespace

Timeline::Timeline() = default;
Timeline::Timeline(Timeline&&) noexcept = default;
Timeline& Timeline::operator=(Timeline&&) noexcept = default;
Timeline::~Timeline() = default;

Timeline Timeline::merge(RunInfo run, std::vector<RankRecord> records) {
  Timeline timeline;
  timeline.run = std::move(run);
  timeline.notes = leave_out_private_steps(records);
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

  for (auto& [rank, record] : timeline.records_) timeline.adopt_tensors(rank, *record);
  for (auto& [rank, ids] : timeline.own_ids_) ids.resize(timeline.tensors.size(), -1);
  std::set<int> wrappers;
  for (const auto& [rank, record] : timeline.records_) {
    for (const auto& field : record->ddp_fields) wrappers.insert(field.wrapper);
  }
  if (wrappers.size() == 1) timeline.wrapper = *wrappers.begin();
  std::map<std::int64_t, TimelineStep> steps;
  std::int64_t last_step = 0;
  for (const auto& [rank, record] : timeline.records_) {
    for (const auto& step : record->steps) {
      auto& merged = steps[step.step];
      merged.number = step.step;
      merged.ranks.resize(static_cast<std::size_t>(timeline.run.world_size), nullptr);
      merged.set(rank, &step, timeline.tensors.size());
      last_step = std::max(last_step, step.step);
    }
  }
  for (auto& [number, step] : steps) {
    compute_drift(timeline, step, timeline.own_ids_, nullptr);
    timeline.steps.push_back(std::move(step));
  }

  std::vector<std::pair<std::string, std::vector<int>>> warnings;  // each text with its ranks
  for (const auto& [rank, record] : timeline.records_) {
    for (const auto& event : record->events) {
      if (event.kind != "warning") continue;
      const auto known = std::find_if(warnings.begin(), warnings.end(),
                                      [&](const auto& w) { return w.first == event.text; });
      if (known == warnings.end()) {
        warnings.push_back({event.text, {rank}});
      } else {
        known->second.push_back(rank);
      }
    }
  }
  for (const auto& [text, ranks] : warnings) {
    const bool all = ranks.size() == static_cast<std::size_t>(timeline.run.world_size);
    std::string who;
    for (const int rank : ranks) who += (who.empty() ? "rank " : ", ") + std::to_string(rank);
    timeline.notes.push_back(fmt::format("not examined{}: {}", all ? "" : " (" + who + ")", text));
  }
  for (int rank = 0; rank < timeline.run.world_size; ++rank) {
    const auto* record = timeline.record(rank);
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
      records.back().calls = read_calls(calls_file(folder, *rank));
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
  for (int rank = 0; rank < timeline.run.world_size; ++rank) {
    auto stack = read_stack(stack_file(folder, rank));
    if (!stack.empty()) timeline.stacks[rank] = std::move(stack);
    auto native = read_native_stack(native_stack_file(folder, rank));
    if (!native.empty()) timeline.native_stacks[rank] = std::move(native);
  }
  for (auto& refusal : refusals) timeline.notes.push_back(std::move(refusal));

  const bool all = static_cast<int>(readers.size()) == timeline.run.world_size;
  for (auto& step : timeline.steps) {
    if (all && !step.weight_drift) compute_drift(timeline, step, timeline.own_ids_, &readers);
  }
  const auto* first = timeline.step(1);
  if (all && first != nullptr && first->complete())
    timeline.mean_check = check_mean(timeline, *first, timeline.own_ids_, readers);
  return timeline;
}

// Ranks may know their tensors in different orders, and may not all have the same ones: what counts
// is the name, and among tensors of one name the order.
void Timeline::adopt_tensors(int rank, RankRecord& record) {
  using Key = std::pair<std::string, int>;
  const auto keys_of = [](const std::vector<TensorInfo>& list) {
    std::map<std::string, int> seen;
    std::vector<Key> keys;
    for (const auto& tensor : list) keys.emplace_back(tensor.name, seen[tensor.name]++);
    return keys;
  };
  std::map<Key, int> known;
  for (const auto& key : keys_of(tensors)) known.emplace(key, static_cast<int>(known.size()));
  std::vector<int> merged;  // by the record's id
  const auto keys = keys_of(record.tensors);
  auto& own = own_ids_[rank];
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto [at, fresh] = known.emplace(keys[i], static_cast<int>(tensors.size()));
    if (fresh) {
      tensors.push_back(record.tensors[i]);
      tensors.back().id = at->second;
    }
    tensors[static_cast<std::size_t>(at->second)].trainable |= record.tensors[i].trainable;
    merged.push_back(at->second);
    own.resize(tensors.size(), -1);
    own[static_cast<std::size_t>(at->second)] = record.tensors[i].id;
  }
  const auto rename = [&](int& id) {
    id = id >= 0 && static_cast<std::size_t>(id) < merged.size()
             ? merged[static_cast<std::size_t>(id)]
             : -1;
  };
  for (auto& step : record.steps) {
    for (auto& seen : step.observations) rename(seen.tensor);
    for (auto& usage : step.usages) rename(usage.tensor);
    for (auto& sample : step.samples) rename(sample.tensor);
  }
}

const Site* Timeline::site(const std::string& what) const {
  const std::string own = wrapper ? what + " " + std::to_string(*wrapper) : what;
  const Site* other = nullptr;
  for (const auto& [rank, record] : records_) {
    for (const auto& site : record->sites) {
      if (site.what == what || site.what == own) return &site;
      if (other == nullptr && site.what.starts_with(what + " ")) other = &site;
    }
  }
  return other;
}

const Fact* Timeline::fact(int rank, const std::string& subject, const std::string& key,
                           std::optional<std::int64_t> step) const {
  const auto* found = record(rank);
  if (found == nullptr) return nullptr;
  const Fact* latest = nullptr;
  for (const auto& fact : found->facts) {
    if (fact.subject == subject && fact.key == key && (!step || fact.step <= *step)) latest = &fact;
  }
  return latest;
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
    if (field.moment == "construction" && field.key == key &&
        field.wrapper == wrapper.value_or(field.wrapper))
      return field.value;
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
