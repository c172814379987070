// Builds the records of a small run by hand: healthy unless told otherwise.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lib/timeline/timeline.h"

namespace ddp_doctor {

inline TensorDigest digest_of(int value) {
  TensorDigest digest;
  digest.bits[0] = static_cast<std::uint8_t>(value);
  digest.l2_norm = digest.max_abs = value;
  digest.numel = 1;
  return digest;
}

class RunBuilder {
 public:
  // Ranks with equal weights and, at each step, equal gradients from different local ones, all
  // parameters used.
  RunBuilder(int world_size, std::vector<std::string> names, int steps) {
    run_.world_size = world_size;
    run_.strategy = "ddp";
    for (int rank = 0; rank < world_size; ++rank) {
      RankRecord record;
      record.header.rank = rank;
      record.header.world_size = world_size;
      for (std::size_t i = 0; i < names.size(); ++i) {
        TensorInfo info;
        info.id = static_cast<int>(i);
        info.name = names[i];
        info.dtype = "float32";
        info.sizes = {1};
        info.numel = 1;
        info.ddp_index = info.id;
        record.tensors.push_back(info);
      }
      for (int step = 0; step <= steps; ++step) record.steps.push_back(healthy_step(record, step));
      record.events.push_back({steps, 1, "end", "finished", ""});
      records_.push_back(std::move(record));
    }
  }

  RunBuilder& wrapper(std::map<std::string, std::string> options) {
    options["world_size"] = std::to_string(run_.world_size);
    for (auto& record : records_) {
      for (const auto& [key, value] : options)
        record.ddp_fields.push_back({"construction", key, value, true});
    }
    return *this;
  }

  StepRecord& step(int rank, int number) {
    return record(rank).steps.at(static_cast<std::size_t>(number));
  }
  RankRecord& record(int rank) { return records_.at(static_cast<std::size_t>(rank)); }
  RunInfo& info() { return run_; }

  RunBuilder& each_step(const std::function<void(int rank, StepRecord&)>& change) {
    for (auto& record : records_) {
      for (auto& step : record.steps) {
        if (step.step > 0) change(record.header.rank, step);
      }
    }
    return *this;
  }

  // `rank` gets other bits than its peers from this step on.
  RunBuilder& differ(int rank, int tensor, Stage stage, int from_step) {
    for (auto& step : record(rank).steps) {
      for (auto& seen : step.observations) {
        if (step.step >= from_step && seen.tensor == tensor && seen.stage == stage)
          seen.digest = digest_of(100 + rank);
      }
    }
    return *this;
  }

  RunBuilder& unused(int rank, int tensor, int from_step = 1, int to_step = 1000) {
    for (auto& step : record(rank).steps) {
      if (step.step < from_step || step.step > to_step) continue;
      for (auto& usage : step.usages) {
        if (usage.tensor == tensor) usage.used = usage.reached = usage.in_output = false;
      }
      std::erase_if(step.observations, [&](const Observation& seen) {
        return seen.tensor == tensor &&
               (seen.stage == Stage::kLocalGradient || seen.stage == Stage::kGradient);
      });
    }
    return *this;
  }

  // Every rank ends with `text` in `step`, which stays unrecorded, as do later ones.
  RunBuilder& raise(int rank, int step, const std::string& text, std::int64_t time_ns = 1) {
    auto& here = record(rank);
    std::erase_if(here.steps, [&](const StepRecord& seen) { return seen.step >= step; });
    here.events = {{step, time_ns, "error", "forward", text}};
    return *this;
  }

  Timeline build() { return Timeline::merge(run_, std::move(records_)); }

 private:
  static StepRecord healthy_step(const RankRecord& record, int number) {
    StepRecord step;
    step.step = number;
    for (const auto& tensor : record.tensors) {
      step.observations.push_back({tensor.id, Stage::kWeight, digest_of(10 + number)});
      if (number == 0) continue;
      step.observations.push_back(
          {tensor.id, Stage::kLocalGradient, digest_of(50 + record.header.rank)});
      step.observations.push_back({tensor.id, Stage::kGradient, digest_of(30 + number)});
      step.usages.push_back({tensor.id, true, true, true, false});
    }
    if (number > 0) {
      step.loss = 1.0;
      step.duration_ns = 1'000'000;
      step.backwards = step.forwards_through_wrapper = 1;
    }
    return step;
  }

  RunInfo run_;
  std::vector<RankRecord> records_;
};

}  // namespace ddp_doctor
