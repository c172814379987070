// SPDX-License-Identifier: BSD-3-Clause
// Writes the results of each training step to the rank's record: digests, usage, times, kept
// values.
#pragma once

#include <torch/script.h>

#include <chrono>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "lib/record/progress.h"
#include "lib/record/writer.h"
#include "probes/libtorch/ddp/distributed_data_parallel.h"
#include "probes/torchscript/options.h"
#include "probes/torchscript/strategy.h"
#include "probes/torchscript/usage.h"

namespace ddp_doctor {

// Parameters (trainable ones first, in the reducer's order, then frozen ones) and buffers, with ids
// by position.
std::vector<TensorInfo> describe_tensors(const torch::jit::Module& module,
                                         const ModuleState& state);

// The steps for which raw values are kept: all, if they fit into `budget` bytes; otherwise as many
// as fit, spread evenly, the last first, then the first.
std::vector<std::int64_t> steps_to_keep(std::int64_t steps, std::int64_t every,
                                        std::int64_t bytes_per_step, std::int64_t budget);

class Recorder {
 public:
  // Throws Error if the record cannot be written. Made before the wrapper, see UsageObserver.
  Recorder(const WorkerOptions& options, const torch::jit::Module& module, const ModuleState& state,
           const std::string& substitutions);

  ProgressWriter& progress() { return progress_; }
  UsageObserver& usage() { return usage_; }

  void begin_training();  // the state before step 1
  void begin_step(std::int64_t step);
  void before_optimizer();  // gradients as optimizer.step() gets them
  void end_step(double loss, int backwards, int unsynchronized, const Strategy::Counts& counts);
  void ddp_fields(const std::string& moment, const DataParallelReducer& reducer);
  void event(const std::string& kind, const std::string& text);
  void close() { writer_.close(); }

 private:
  using Clock = std::chrono::steady_clock;
  bool recorded(std::int64_t step) const;
  void observe(const at::Tensor& tensor, int id, Stage stage);
  void observe_state();
  void keep(const at::Tensor& tensor, int id, Stage stage);
  bool peers_have_these_weights();
  void on_gradient(std::size_t parameter) noexcept;
  void note_trouble(const std::string& text);

  const WorkerOptions& options_;
  torch::jit::Module module_;
  ModuleState state_;
  std::vector<TensorInfo> tensors_;
  std::vector<at::Tensor> frozen_;
  ProgressWriter progress_;
  RecordWriter writer_;
  UsageObserver usage_;
  std::vector<std::int64_t> keep_weights_;
  bool keep_gradients_ = false;
  bool peers_answer_ = true;
  StepRecord step_;
  std::set<std::string> troubles_;            // what could not be examined, each once
  std::vector<std::string> pending_;          // of these, the ones not yet in the record
  std::vector<Observation> local_gradients_;  // by parameter; overwritten by each micro-batch
  std::vector<KeptValues> local_values_;
  std::vector<char> local_seen_;
  Clock::time_point started_;
  Clock::duration probing_{};  // of the current step
  Clock::duration writing_{};  // of the last write, charged to the step after it
};

}  // namespace ddp_doctor
