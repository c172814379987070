// SPDX-License-Identifier: BSD-3-Clause
#include "lib/timeline/replica_watch.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lib/log.h"
#include "lib/record/progress.h"
#include "lib/record/reader.h"
#include "lib/record/writer.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;

constexpr auto kEvery = std::chrono::milliseconds(500);
constexpr std::int64_t kMaxValues = (64 << 20) / 4;  // of one request, in elements
constexpr std::int64_t kMaxLead = 1024;

// The records of all ranks; empty until every rank has one.
std::vector<RecordReader> open_records(const fs::path& folder) {
  std::vector<RecordReader> readers;
  int world_size = 1;
  for (int rank = 0; rank < world_size; ++rank) {
    const fs::path file = record_file(folder, rank);
    if (!fs::exists(file)) return {};
    readers.emplace_back(file);
    if (rank == 0) world_size = readers.front().header().world_size;
  }
  return readers;
}

// Parameters whose weights are not the same on every rank after `step`.
std::vector<std::string> differing(const std::vector<RecordReader>& readers, std::int64_t step) {
  const Slot weights{Seen::kDigests, Stage::kWeight};
  const auto root = readers.front().root(step, weights);
  const bool same = root && std::all_of(readers.begin(), readers.end(), [&](const auto& reader) {
                      return reader.root(step, weights) == root;
                    });
  std::vector<std::string> names;
  if (same) return names;
  const auto first = readers.front().weights(step);
  for (std::size_t rank = 1; rank < readers.size(); ++rank) {
    const auto other = readers[rank].weights(step);
    for (const auto& [name, bits] : first.bits) {
      const auto found = other.bits.find(name);
      if (found != other.bits.end() && found->second != bits) names.push_back(name);
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

bool has_values(const std::vector<RecordReader>& readers, std::int64_t step,
                const std::string& name) {
  return std::all_of(readers.begin(), readers.end(), [&](const RecordReader& reader) {
    return !reader.values(step, reader.tensor_id(name), Stage::kWeight).empty();
  });
}

}  // namespace

void ReplicaWatch::look() noexcept {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return;
  try {
    look_now();
  } catch (const std::exception& error) {
    // The record is being created; the report will show errors.
    log::debug("comparing the replicas failed and will be tried again: {}", error.what());
  }
  next_ = std::chrono::steady_clock::now() + kEvery;
}

void ReplicaWatch::look_now() {
  const auto readers = open_records(folder_);
  if (readers.size() < 2) return;
  std::int64_t step = std::numeric_limits<std::int64_t>::max();
  for (const auto& reader : readers) step = std::min(step, reader.last_examined_step());
  if (step < 1) return;
  compare(readers, step);
  if (step < not_before_) return;
  if (asked_step_ > 0 && step < asked_step_) return;  // they are on their way

  const auto names = differing(readers, asked_step_ > 0 ? asked_step_ : step);
  if (names.empty()) {
    asked_step_ = 0;
    return;
  }
  const bool answered = has_values(readers, asked_step_ > 0 ? asked_step_ : step, names.front());
  if (answered) {
    asked_step_ = 0;
    not_before_ = 2 * step;  // request values less and less often
    return;
  }
  if (asked_step_ > 0) {
    lead_ = std::min(4 * lead_, kMaxLead);
    log::debug(
        "the request for the values of {} at step {} was not answered; asking {} steps ahead",
        names.front(), asked_step_, lead_);
  }
  ask(static_cast<int>(readers.size()), names);
}

void ReplicaWatch::compare(const std::vector<RecordReader>& readers, std::int64_t until) {
  const Slot weights{Seen::kDigests, Stage::kWeight};
  std::map<std::int64_t, Root> expected;
  for (const auto& reader : readers) {
    for (const auto& [step, root] : reader.roots(weights, watched_.until + 1, until)) {
      const bool same = expected.try_emplace(step, root).first->second == root;
      if (!same && step < watched_.differs_at.value_or(until + 1)) watched_.differs_at = step;
    }
  }
  watched_.until = until;
  for (std::size_t rank = 0; rank < readers.size(); ++rank)
    tell_watched(progress_file(folder_, static_cast<int>(rank)), watched_);
}

void ReplicaWatch::ask(int world_size, const std::vector<std::string>& names) {
  std::int64_t fastest = 0;
  for (int rank = 0; rank < world_size; ++rank)
    fastest = std::max(fastest, read_progress(progress_file(folder_, rank)).step);
  asked_step_ = fastest + lead_;
  const fs::path request = folder_ / "values.json";
  {
    std::ofstream out(request.string() + ".new");
    out << nlohmann::json{{"step", asked_step_}, {"parameters", names}, {"elements", kMaxValues}};
  }
  fs::rename(request.string() + ".new", request);
  for (int rank = 0; rank < world_size; ++rank)
    ask_for_values(progress_file(folder_, rank), asked_step_);
}

}  // namespace ddp_doctor
