// SPDX-License-Identifier: BSD-3-Clause
// DistributedDataParallel for C++: the wrapper that LibTorch does not have, on PyTorch's own
// c10d::Reducer.
//
// It follows torch/nn/parallel/distributed.py step by step: the order and de-duplication of
// parameters, the check that replicas match, the first broadcast, bucket limits, and the work
// around each forward. Because the reducer is PyTorch's own, gradients are bit-identical and error
// texts are the same. docs/ddp.md explains the order and why it matters.
//
// clang-format off
//   auto group = ddp_doctor::make_gloo_process_group({.rank = rank, .world_size = 2, .file = "/tmp/rendezvous"});
//   ddp_doctor::DistributedDataParallel ddp(model, group);  // any torch::nn module, or a torch::jit::Module
//   auto loss = ddp(input).pow(2).mean();                   // the forward goes through the wrapper
//   loss.backward();                                        // gradients are averaged here
// clang-format on
//
// Not thread-safe: one thread drives a wrapper, as in Python. Not supported: device_ids.
#pragma once

#include <ddp_doctor/code_place.h>
#include <ddp_doctor/module_state.h>
#include <ddp_doctor/tensors.h>
#include <ddp_doctor/torch_compat.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace ddp_doctor {

struct DistributedDataParallelOptions {
  // Broadcasts rank 0's buffers before each forward that follows a synchronizing one.
  bool broadcast_buffers = true;
  bool find_unused_parameters = false;
  bool gradient_as_bucket_view = false;
  bool static_graph = false;
  // MiB; 0 means "not given": 25, with a first bucket of 1 MiB, as Python's default.
  std::int64_t bucket_cap_mb = 0;
};

// Python's join(): for ranks that run out of data at different times.
struct JoinOptions {
  // Divide gradients by the world size; otherwise, by the number of ranks that still train.
  bool divide_by_initial_world_size = true;
  // Raise an error on all ranks as soon as one rank runs out of data.
  bool throw_on_early_termination = false;
};

// The implementation for any type of module. Most programs use DistributedDataParallel below.
//
// The destructor destroys the logger first (it reports once more, and holds the reducer), then the
// reducer (it removes its hooks from the parameters), then this handle of the process group. c10d's
// destructors may throw, which terminates the program: destroy it while the process group works,
// not during static destruction. After a fatal error, save what is needed and _exit.
class DataParallelReducer {
 public:
  // Blocks until all ranks call it. Throws c10::Error, with PyTorch's text, if no parameter
  // requires a gradient or if the replicas do not match. On the rank that the others are compared
  // with, a mismatch of shapes may only appear as a lost connection. `where`: the line that reports
  // show.
  DataParallelReducer(ModuleState module, ProcessGroupPtr process_group,
                      const DistributedDataParallelOptions& options = {},
                      CodePlace where = CodePlace::current());
  ~DataParallelReducer();
  DataParallelReducer(const DataParallelReducer&) = delete;
  DataParallelReducer& operator=(const DataParallelReducer&) = delete;

  // The part of Python's forward before the module's forward. Throws the "Expected to have finished
  // reduction" error.
  void before_forward();
  // The part after the module's forward. `outputs` are all tensors in the module's return value.
  // Returns the tensors to use instead, in the same order: the same ones, or passed through the
  // wrapper's autograd node.
  std::vector<at::Tensor> after_forward(std::vector<at::Tensor> outputs);

  // False inside no_sync(): gradients of forwards that start there accumulate locally.
  bool require_backward_grad_sync() const;
  void set_require_backward_grad_sync(bool value);

  // Sets how the reducer communicates a bucket. Call it once, before the first backward. `name`:
  // for the DDP logging data.
  void register_comm_hook(std::unique_ptr<c10d::CommHookInterface> hook, const std::string& name);
  void register_comm_hook(c10d::BuiltinCommHookType hook);

  // Runs `train`, the whole loop over this rank's data. A rank that finishes early takes part in
  // the collectives of the others, with zeros, until all have finished. Then all ranks have the
  // last rank's parameters. Exceptions of `train` propagate without waiting for the others.
  void join(const std::function<void()>& train, const JoinOptions& options);

  const ModuleState& module() const;
  // The current DDP logging data, by key; see c10::DDPLoggingData. As in PyTorch, run-time values
  // are those of the last sampled iteration (the first ten, then every hundredth), updated when the
  // next forward starts.
  c10::DDPLoggingData logging_data() const;

  struct State;  // data_parallel_state.h

 private:
  std::unique_ptr<State> state_;
};

// Backward passes of forwards that start during its lifetime do not synchronize (Python's `with
// ddp.no_sync():`).
class NoSync {
 public:
  explicit NoSync(DataParallelReducer& reducer)
      : reducer_(reducer), before_(reducer.require_backward_grad_sync()) {
    reducer_.set_require_backward_grad_sync(false);
  }
  ~NoSync() { reducer_.set_require_backward_grad_sync(before_); }
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  DataParallelReducer& reducer_;
  bool before_;
};

// `Module` is a torch::nn::ModuleHolder (what TORCH_MODULE makes), a std::shared_ptr to a
// torch::nn::Module, or a torch::jit::Module; it is deduced.
template <class Module>
class DistributedDataParallel {
 public:
  explicit DistributedDataParallel(Module module, ProcessGroupPtr process_group,
                                   const DistributedDataParallelOptions& options = {},
                                   CodePlace where = CodePlace::current())
      : module_(std::move(module)),
        reducer_(describe(described()), std::move(process_group), options, where) {}

  // Runs the module's forward and prepares its backward to synchronize. Returns the module's return
  // value.
  template <class... Arguments>
  auto forward(Arguments&&... arguments) {
    return run([&] {
      if constexpr (kIsScript) {
        return module_.forward(std::vector<c10::IValue>{c10::IValue(arguments)...});
      } else {
        return module_->forward(std::forward<Arguments>(arguments)...);
      }
    });
  }
  template <class... Arguments>
  auto operator()(Arguments&&... arguments) {
    return forward(std::forward<Arguments>(arguments)...);
  }

  // Runs `function` as the module's forward: for programs whose training step is another method.
  template <class Function>
  auto run(Function&& function) {
    RECORD_USER_SCOPE("DistributedDataParallel.forward");  // Python's profiler label
    reducer_.before_forward();
    if constexpr (std::is_void_v<std::invoke_result_t<Function>>) {
      std::forward<Function>(function)();
      reducer_.after_forward({});
    } else {
      auto output = std::forward<Function>(function)();
      hand_on(output);
      return output;
    }
  }

  // The ranks' loops may have different lengths; see DataParallelReducer::join.
  //   ddp.join([&] { for (auto& batch : *loader) train_step(batch); });
  void join(const std::function<void()>& train, const JoinOptions& options = {}) {
    reducer_.join(train, options);
  }

  [[nodiscard]] NoSync no_sync() { return NoSync(reducer_); }

  Module& module() { return module_; }
  const Module& module() const { return module_; }
  DataParallelReducer& reducer() { return reducer_; }
  const DataParallelReducer& reducer() const { return reducer_; }

 private:
  static constexpr bool kIsScript = std::is_same_v<Module, torch::jit::Module>;

  const auto& described() const {
    if constexpr (kIsScript) {
      return module_;
    } else {
      return *module_;
    }
  }

  // Rebuilds the output only if the wrapper's autograd node was added: otherwise it is returned
  // unchanged, as in Python.
  template <class Output>
  void hand_on(Output& output) {
    const std::vector<at::Tensor> found = collect_tensors(output);
    const std::vector<at::Tensor> passed = reducer_.after_forward(found);
    const auto same = [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); };
    if (!std::equal(found.begin(), found.end(), passed.begin(), passed.end(), same)) {
      replace_tensors(output, passed);
    }
  }

  Module module_;  // first: the reducer refers to its buffers
  DataParallelReducer reducer_;
};

}  // namespace ddp_doctor
