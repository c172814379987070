// SPDX-License-Identifier: BSD-3-Clause
// The state of a DataParallelReducer; shared by data_parallel_reducer.cpp and join.cpp.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "probes/libtorch/ddp/distributed_data_parallel.h"
#include "probes/libtorch/ddp/observer.h"

namespace ddp_doctor {

// State that backward passes may still read after the wrapper is destroyed.
struct StaticGraph {
  std::weak_ptr<c10d::Reducer> reducer;
  bool all_reduce_enqueued = false;
};

// Members are destroyed in reverse order: see the class comment.
struct DataParallelReducer::State {
  ModuleState module;
  DistributedDataParallelOptions options;
  ProcessGroupPtr process_group;
  std::shared_ptr<c10d::Reducer> reducer;
  std::shared_ptr<c10d::Logger> logger;
  std::vector<NodePtr> accumulators;  // by parameter: where the reducer's hooks are
  std::shared_ptr<StaticGraph> static_graph = std::make_shared<StaticGraph>();
  bool require_backward_grad_sync = true;
  bool require_forward_param_sync = true;
  bool has_buffers = false;  // at the last look, as in Python
  std::int64_t synchronizing_forwards = 0;
  std::int64_t unused_parameter_size = 0;  // bytes, at the last sampled iteration

  int number = -1;  // by which the examination knows it
  std::weak_ptr<TrainingObserver> told;
  std::shared_ptr<TrainingObserver> observer() const { return told.lock(); }
  // Reports exceptions of c10d to the examination before rethrowing them.
  template <class Work, class Callback>
  void telling(const Work& work, const Callback& callback) const {
    try {
      work();
    } catch (const c10::Error& error) {
      if (observer()) callback(error.what_without_backtrace());
      throw;
    } catch (const std::exception& error) {
      if (observer()) callback(error.what());
      throw;
    }
  }
  // Set while the program's loop runs inside join().
  std::optional<JoinOptions> joined;

  void construct();
  void broadcast(const std::vector<at::Tensor>& tensors, int from);
  void broadcast_module(int from);
  void make_reducer_and_logger();
  void keep_accumulators();
  bool sends_buffers() const {
    return require_forward_param_sync && options.broadcast_buffers && has_buffers;
  }
  void broadcast_buffers(int from);
  void before_forward();
  void note_runtime_stats();
  bool synchronizes() const { return at::GradMode::is_enabled() && require_backward_grad_sync; }
  bool needs_pass_through() const;

  // join.cpp: communication between joined and training ranks.
  void tell_joined_ranks();
  int common_rank(bool candidate);
  bool told_to_synchronize(bool joined_rank);
  double sum_over_ranks(double value);
  void shadow_iteration();
  void shadow_backward();
};

}  // namespace ddp_doctor
