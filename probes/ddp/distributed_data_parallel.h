// SPDX-License-Identifier: BSD-3-Clause
// DistributedDataParallel for C++: the wrapper that LibTorch does not have, on PyTorch's own
// c10d::Reducer.
//
// It repeats torch/nn/parallel/distributed.py step by step: the order and de-duplication of
// parameters, the check that replicas match, the first broadcast, bucket limits, what happens
// around each forward, and, because the reducer is PyTorch's own, its gradients bit for bit and its
// error texts. docs/ddp.md tells the order and why it matters.
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
  // Before each forward that follows a synchronizing one, rank 0's buffers replace those of the
  // others.
  bool broadcast_buffers = true;
  bool find_unused_parameters = false;
  bool gradient_as_bucket_view = false;
  bool static_graph = false;
  // MiB; 0 means "not given": 25, with a first bucket of 1 MiB, as Python's default.
  std::int64_t bucket_cap_mb = 0;
};

// Python's join(): for ranks that run out of data at different times.
struct JoinOptions {
  // Gradients are divided by the number of all ranks; otherwise, of those that still train.
  bool divide_by_initial_world_size = true;
  // As soon as one rank has no more data, all of them get an error.
  bool throw_on_early_termination = false;
};

// The machinery, whatever the module's type. Most programs want DistributedDataParallel below.
//
// When it goes, the logger goes first (it reports once more, and holds the reducer), then the
// reducer (it takes its hooks off the parameters), then this handle of the process group. c10d's
// destructors may throw, which ends the program: destroy it while the process group works, and not
// during static destruction. After a fatal error it is better to write down what is needed and to
// _exit.
class DataParallelReducer {
 public:
  // Blocks until all ranks are here. Throws c10::Error, with PyTorch's text, if no parameter
  // requires a gradient or if the replicas do not match; on the rank that the others are compared
  // with, a mismatch of shapes may show as a lost connection only.
  // `where`: the line that reports show.
  DataParallelReducer(ModuleState module, ProcessGroupPtr process_group,
                      const DistributedDataParallelOptions& options = {},
                      CodePlace where = CodePlace::current());
  ~DataParallelReducer();
  DataParallelReducer(const DataParallelReducer&) = delete;
  DataParallelReducer& operator=(const DataParallelReducer&) = delete;

  // What Python's forward does before the module's own: throws the "Expected to have finished
  // reduction" error here.
  void before_forward();
  // What it does after: `outputs` are all tensors found in the module's return value; they come
  // back, in the same order, as the tensors to hand on (the same ones, or passed through the
  // wrapper's autograd node).
  std::vector<at::Tensor> after_forward(std::vector<at::Tensor> outputs);

  // False inside no_sync(): gradients of forwards that begin then are accumulated locally.
  bool require_backward_grad_sync() const;
  void set_require_backward_grad_sync(bool value);

  // How the reducer sends a bucket; before the first backward, and once only. `name`: for the DDP
  // logging data.
  void register_comm_hook(std::unique_ptr<c10d::CommHookInterface> hook, const std::string& name);
  void register_comm_hook(c10d::BuiltinCommHookType hook);

  // Runs `train`, the whole loop over this rank's data; whoever comes to its end first then takes
  // part in the collectives of the others, with zeros, until all have come. At the end all have the
  // last rank's parameters. What `train` throws goes on, and the others are not waited for.
  void join(const std::function<void()>& train, const JoinOptions& options);

  const ModuleState& module() const;
  // The DDP logging data as it is now, key by key; see c10::DDPLoggingData. As in PyTorch, run-time
  // values are those of the last sampled iteration (the first ten, then every hundredth), noted
  // when the next forward begins.
  c10::DDPLoggingData logging_data() const;

  struct State;  // data_parallel_state.h

 private:
  std::unique_ptr<State> state_;
};

// While it lives, backward passes of forwards begun in its scope do not synchronize (Python's `with
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

  // The module's forward, and around it what makes backward synchronize. Returns what the module
  // returns.
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

  // Runs `function` as if it were the module's forward: for programs whose training step is another
  // method.
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

  // Every rank comes here with a loop of its own length; see DataParallelReducer::join.
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

  // Rebuilds the output only when the wrapper's node stands behind it: otherwise it goes out as it
  // came, as in Python.
  template <class Output>
  void hand_on(Output& output) {
    const std::vector<at::Tensor> found = collect_tensors(output);
    const std::vector<at::Tensor> passed = reducer_.after_forward(found);
    const auto same = [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); };
    if (!std::equal(found.begin(), found.end(), passed.begin(), passed.end(), same)) {
      replace_tensors(output, passed);
    }
  }

  Module module_;  // first: the reducer's view of the buffers looks into it
  DataParallelReducer reducer_;
};

}  // namespace ddp_doctor
