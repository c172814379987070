// SPDX-License-Identifier: BSD-3-Clause
// Uneven inputs: torch/distributed/algorithms/join.py and _DDPJoinHook of
// torch/nn/parallel/distributed.py, for one wrapper.
//
// At each forward the training ranks count themselves by an all-reduce of ones. A rank without data
// contributes zeros, and then takes part in every collective of the iteration, in order: the common
// source of buffers, whether this iteration synchronizes, one reduction per bucket, the map of used
// parameters.

#include "probes/libtorch/ddp/data_parallel_state.h"

namespace ddp_doctor {
namespace {

c10::intrusive_ptr<c10d::Work> reduce(const ProcessGroupPtr& group, const at::Tensor& tensor,
                                      c10d::ReduceOp::RedOpType op = c10d::ReduceOp::SUM) {
  std::vector<at::Tensor> tensors{tensor};
  c10d::AllreduceOptions options;
  options.reduceOp = op;
  return group->allreduce(tensors, options);
}

}  // namespace

double DataParallelReducer::State::sum_over_ranks(double value) {
  const at::Tensor sum = at::full({1}, value, at::kFloat);
  reduce(process_group, sum)->wait();
  return sum.item<double>();
}

void DataParallelReducer::State::tell_joined_ranks() {
  const auto work = reduce(process_group, at::ones({1}));
  if (joined->throw_on_early_termination) {
    TORCH_CHECK(sum_over_ranks(0) == 0,
                "Detected at least one rank that exhausted inputs. Throwing across all ranks.");
  }
  reducer->set_forward_pass_work_handle(work, joined->divide_by_initial_world_size);
}

// The largest rank of the candidates.
int DataParallelReducer::State::common_rank(bool candidate) {
  const at::Tensor rank = at::full({1}, candidate ? process_group->getRank() : -1, at::kLong);
  reduce(process_group, rank, c10d::ReduceOp::MAX)->wait();
  TORCH_CHECK(rank.item<std::int64_t>() >= 0,
              "BUG! Expected rank_cond to be true for at least one process.");
  return static_cast<int>(rank.item<std::int64_t>());
}

bool DataParallelReducer::State::told_to_synchronize(bool joined_rank) {
  const bool asks = !joined_rank && require_backward_grad_sync;
  const at::Tensor asked = at::full({1}, asks ? 1. : 0., at::kFloat);
  const auto work = reduce(process_group, asked);
  if (!joined_rank) return asks;  // it sends, and need not wait
  work->wait();
  return asked.item<double>() != 0;
}

// One reduction per bucket, in the reducer's order, of zeros.
void DataParallelReducer::State::shadow_backward() {
  std::vector<c10::intrusive_ptr<c10::ivalue::Future>> sent;
  auto buckets = reducer->get_grad_buckets(/*return_zero_tensors=*/true);
  for (auto& bucket : buckets) sent.push_back(reducer->run_comm_hook(bucket));
  for (const auto& future : sent) future->wait();
}

void DataParallelReducer::State::shadow_iteration() {
  reducer->rebuild_buckets();
  if (sends_buffers()) broadcast_buffers(common_rank(false));
  require_forward_param_sync = told_to_synchronize(true);
  if (!require_forward_param_sync) return;
  shadow_backward();
  if (options.find_unused_parameters) {
    std::vector<at::Tensor> used{reducer->get_local_used_map_on_device()};
    process_group->allreduce(used)->wait();
  }
  reducer->push_rebuilt_params_for_all_indices();
}

void DataParallelReducer::join(const std::function<void()>& train, const JoinOptions& options) {
  State& state = *state_;
  struct Scope {
    std::optional<JoinOptions>& joined;
    ~Scope() { joined.reset(); }
  } scope{state.joined};
  state.joined = options;
  state.logger->set_uneven_input_join();
  train();
  bool last = true;
  while (state.sum_over_ranks(0) != 0) {
    if (options.throw_on_early_termination) {
      state.sum_over_ranks(1);
      TORCH_CHECK(false, "Rank ", state.process_group->getRank(), " exhausted all inputs.");
    }
    state.shadow_iteration();
    last = false;
  }
  state.broadcast_module(state.common_rank(last));
}

}  // namespace ddp_doctor
