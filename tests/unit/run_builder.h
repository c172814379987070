// SPDX-License-Identifier: BSD-3-Clause
// Builds the records of a small run by hand: healthy unless told otherwise.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lib/diagnose/diagnose.h"
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
        if (usage.tensor != tensor) continue;
        usage.used = false;
        usage.reached = usage.in_output = false;
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

  // What each step did, in order (docs/record.md), and the counts that belong to it.
  RunBuilder& trace(const std::string& actions, int backwards, int from_step = 1,
                    int to_step = 1000) {
    return each_step([&](int, StepRecord& step) {
      if (step.step < from_step || step.step > to_step) return;
      step.trace = actions;
      step.backwards = backwards;
    });
  }

  // One rank's bits of a tensor at a stage, in every step: in place of what is there, or new.
  RunBuilder& observe(int rank, int tensor, Stage stage, int value, int from_step = 1,
                      int to_step = 1000) {
    for (auto& step : record(rank).steps) {
      if (step.step < from_step || step.step > to_step) continue;
      std::erase_if(step.observations, [&](const Observation& seen) {
        return seen.tensor == tensor && seen.stage == stage;
      });
      step.observations.push_back({tensor, stage, digest_of(value)});
    }
    return *this;
  }

  // The stage was not examined.
  RunBuilder& forget(Stage stage) {
    return each_step([&](int, StepRecord& step) {
      std::erase_if(step.observations,
                    [&](const Observation& seen) { return seen.stage == stage; });
    });
  }

  // The values at the sampled positions.
  RunBuilder& sample(int rank, int tensor, Stage stage, const std::vector<double>& values,
                     int from_step = 1, int to_step = 1000) {
    for (auto& step : record(rank).steps) {
      if (step.step < from_step || step.step > to_step) continue;
      std::erase_if(step.samples, [&](const Sample& seen) {
        return seen.tensor == tensor && seen.stage == stage;
      });
      step.samples.push_back({tensor, stage, SampledValues(values)});
    }
    return *this;
  }

  RunBuilder& usage(int tensor, const std::function<void(int rank, Usage&)>& change,
                    int from_step = 1, int to_step = 1000) {
    return each_step([&](int rank, StepRecord& step) {
      if (step.step < from_step || step.step > to_step) return;
      for (auto& usage : step.usages) {
        if (usage.tensor == tensor) change(rank, usage);
      }
    });
  }

  // A hand-written collective of every rank, in every step.
  RunBuilder& call(const Collective& call, int from_step = 1) {
    return each_step([&](int, StepRecord& step) {
      if (step.step < from_step) return;
      step.calls.push_back(call);
      step.collectives += static_cast<int>(call.count);
    });
  }

  RunBuilder& fact(int rank, int step, const std::string& subject, const std::string& key,
                   const std::string& json) {
    record(rank).facts.push_back({step, subject, key, json});
    return *this;
  }

  RunBuilder& tensors(const std::function<void(int rank, TensorInfo&)>& change) {
    for (auto& record : records_) {
      for (auto& tensor : record.tensors) change(record.header.rank, tensor);
    }
    return *this;
  }

  // A buffer, equal on all ranks; returns its id.
  int buffer(const std::string& name, std::optional<int> wrapper) {
    const int id = static_cast<int>(records_.front().tensors.size());
    for (auto& record : records_) {
      TensorInfo info;
      info.id = id;
      info.name = name;
      info.kind = "buffer";
      info.dtype = "float32";
      info.sizes = {1};
      info.numel = 1;
      info.trainable = false;
      info.wrapper = wrapper;
      record.tensors.push_back(info);
      for (auto& step : record.steps)
        step.observations.push_back({id, Stage::kBuffer, digest_of(70)});
    }
    return id;
  }

  // Of some of the ranks, as if the others had run on other machines.
  Timeline build_part(int first, int last) const {
    RunInfo here = run_;
    std::erase_if(here.exits,
                  [&](const RankExit& exit) { return exit.rank < first || exit.rank > last; });
    return Timeline::merge(here, {records_.begin() + first, records_.begin() + last + 1});
  }

  Timeline build() {
    Timeline whole = Timeline::merge(run_, records_);
    announce_nothing_else(whole);
    return whole;
  }

 private:
  // Of every run of these tests: what would have been announced after any of its steps is among its
  // findings in the end.
  void announce_nothing_else(const Timeline& whole) const {
    if (records_.size() > 8 || whole.steps.size() > 40 || whole.steps.empty()) return;
    std::set<std::string> in_the_end;
    for (const auto& root : diagnose(whole).findings) {
      in_the_end.insert(root.rule);
      for (const auto& consequence : root.consequences) in_the_end.insert(consequence.rule);
    }
    RunInfo running = run_;
    running.exits.clear();
    for (std::int64_t step = 1; step <= whole.steps.back().number; ++step) {
      for (const auto& finding :
           lasting(diagnose(Timeline::merge(running, records_, step)).findings))
        EXPECT_TRUE(in_the_end.contains(finding.rule)) << finding.rule << " after step " << step;
    }
  }

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

inline std::vector<std::string> codes_of(const std::vector<Finding>& findings) {
  std::vector<std::string> codes;
  for (const auto& finding : findings) codes.push_back(finding.rule);
  return codes;
}

// The codes of the root causes.
inline std::vector<std::string> diagnosed(RunBuilder run) {
  return codes_of(diagnose(run.build()).findings);
}

// What that rule found, as a root cause or as a consequence.
inline std::optional<Finding> found(const std::string& code, RunBuilder run) {
  for (const auto& root : diagnose(run.build()).findings) {
    if (root.rule == code) return root;
    for (const auto& consequence : root.consequences) {
      if (consequence.rule == code) return consequence;
    }
  }
  return {};
}

inline std::vector<std::string> names_of(const Finding& finding) {
  std::vector<std::string> names;
  for (const auto& parameter : finding.parameters) names.push_back(parameter.name);
  return names;
}

}  // namespace ddp_doctor
