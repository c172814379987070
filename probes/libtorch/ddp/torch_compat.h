// SPDX-License-Identifier: BSD-3-Clause
// Every difference between the LibTorch versions that this code builds against (1.13 to 2.15), and
// nothing else.
//
// Differences in the headers are detected by type traits, so that versions between the tested ones
// work too. Differences in torch/nn/parallel/distributed.py are decided by version number, as
// constants named for the behaviour.
//
// c10d/logger.hpp has no include guard in 1.13: include this file, never that one.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/distributed/c10d/debug.h>
#include <torch/version.h>

#include <cstdint>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ddp_doctor {

using ProcessGroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;

// A std::shared_ptr up to 2.12, a c10::intrusive_ptr from 2.13 on.
using NodePtr =
    decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));

template <class Node, class... Arguments>
NodePtr make_node(Arguments&&... arguments) {
  if constexpr (std::is_same_v<NodePtr, std::shared_ptr<torch::autograd::Node>>) {
    return std::make_shared<Node>(std::forward<Arguments>(arguments)...);
  } else {
    return c10::make_intrusive<Node>(std::forward<Arguments>(arguments)...);
  }
}

template <class Node>
std::weak_ptr<Node> weak(const std::shared_ptr<Node>& node) {
  return node;
}
template <class Node, class Null>
c10::weak_intrusive_ptr<Node, Null> weak(const c10::intrusive_ptr<Node, Null>& node) {
  return c10::weak_intrusive_ptr<Node, Null>(node);
}

// Restores a leaf's gradient accumulator, with its hooks, if torch::load gave the leaf a new one.
// False if it is unchanged, or no longer fits (another dtype or device).
inline bool restore_grad_accumulator(const at::Tensor& leaf, const NodePtr& node) {
  if (!leaf.requires_grad() || !leaf.is_leaf()) return false;
  const auto& made_for = node->input_metadata(0);
  if (leaf.device() != made_for.device() || leaf.dtype() != made_for.options().dtype() ||
      torch::autograd::impl::grad_accumulator(leaf) == node)
    return false;
  torch::autograd::impl::set_grad_accumulator(leaf, weak(node));
  return true;
}

// Behaviour of Python's DistributedDataParallel in this version.
inline constexpr int kTorchVersion = 100 * TORCH_VERSION_MAJOR + TORCH_VERSION_MINOR;
// The first broadcast sends the buffers even with broadcast_buffers=False (until pytorch#100729).
inline constexpr bool kFirstBroadcastAlwaysSendsBuffers = kTorchVersion < 201;
// A bucket_cap_mb given by the user bounds the first bucket, too (pytorch#121640).
inline constexpr bool kGivenCapBoundsFirstBucket = kTorchVersion >= 204;
// static_graph passes outputs through DDP's own node in the forward counted 1; later versions:
// until the delayed all-reduce has been enqueued once.
inline constexpr bool kStaticGraphCountsForwards = kTorchVersion < 200;
// Broadcasting buffers leaves their version counters alone, so that two forwards before one
// backward are possible.
inline constexpr bool kBufferBroadcastKeepsVersions = kTorchVersion >= 213;

// Since 2.4 TCPStore uses libuv by default, which Debian's LibTorch lacks. False if there is no
// such option.
template <class Options>
bool do_without_libuv(Options& options) {
  if constexpr (requires { options.useLibUV; }) {
    options.useLibUV = false;
    return true;
  }
  return false;
}

// Python does this when torch.distributed is imported. Without it, TORCH_CPP_LOG_LEVEL and
// TORCH_DISTRIBUTED_DEBUG have no effect. Groups and reducers read the level when they are
// constructed, so it comes first.
inline void initialize_c10d() {
  static const bool done = [] {
    c10::initLogging();
    c10d::setDebugLevelFromEnvironment();
    return true;
  }();
  static_cast<void>(done);
}

struct ReducerArguments {
  std::vector<at::Tensor> parameters;
  std::vector<std::vector<size_t>> buckets;
  std::vector<size_t> bucket_limits;
  ProcessGroupPtr process_group;
  std::vector<bool> expect_sparse;
  std::int64_t bucket_bytes_cap;
  bool find_unused_parameters;
  bool gradient_as_bucket_view;
  std::unordered_map<size_t, std::string> names;
  std::int64_t first_bucket_bytes_cap;
};

// A template, so that the calls that this version's constructor does not accept are never compiled.
template <class Reducer = c10d::Reducer>
std::shared_ptr<Reducer> make_reducer(ReducerArguments a) {
  using Parameters = std::vector<at::Tensor>;
  using Buckets = std::vector<std::vector<size_t>>;
  using Names = std::unordered_map<size_t, std::string>;
  using Caps = std::vector<std::int64_t>;
  constexpr bool kTakesCaps =
      std::is_constructible_v<Reducer, Parameters, Buckets, ProcessGroupPtr, std::vector<bool>,
                              std::int64_t, bool, bool, Names, std::int64_t, bool, bool, Caps>;
  constexpr bool kTakesPythonReducer =
      std::is_constructible_v<Reducer, Parameters, Buckets, ProcessGroupPtr, std::vector<bool>,
                              std::int64_t, bool, bool, Names, std::int64_t, bool, bool>;
  constexpr bool kTakesSkip =
      std::is_constructible_v<Reducer, Parameters, Buckets, std::vector<size_t>, ProcessGroupPtr,
                              std::vector<bool>, std::int64_t, bool, bool, Names, std::int64_t,
                              bool>;
  constexpr bool skip_unused = false;
  constexpr bool python_reducer = false;
  if constexpr (kTakesCaps) {
    return std::make_shared<Reducer>(std::move(a.parameters), std::move(a.buckets),
                                     std::move(a.process_group), std::move(a.expect_sparse),
                                     a.bucket_bytes_cap, a.find_unused_parameters,
                                     a.gradient_as_bucket_view, std::move(a.names),
                                     a.first_bucket_bytes_cap, skip_unused, python_reducer, Caps{});
  } else if constexpr (kTakesPythonReducer) {
    return std::make_shared<Reducer>(std::move(a.parameters), std::move(a.buckets),
                                     std::move(a.process_group), std::move(a.expect_sparse),
                                     a.bucket_bytes_cap, a.find_unused_parameters,
                                     a.gradient_as_bucket_view, std::move(a.names),
                                     a.first_bucket_bytes_cap, skip_unused, python_reducer);
  } else if constexpr (kTakesSkip) {
    return std::make_shared<Reducer>(std::move(a.parameters), std::move(a.buckets),
                                     std::move(a.bucket_limits), std::move(a.process_group),
                                     std::move(a.expect_sparse), a.bucket_bytes_cap,
                                     a.find_unused_parameters, a.gradient_as_bucket_view,
                                     std::move(a.names), a.first_bucket_bytes_cap, skip_unused);
  } else {
    return std::make_shared<Reducer>(std::move(a.parameters), std::move(a.buckets),
                                     std::move(a.bucket_limits), std::move(a.process_group),
                                     std::move(a.expect_sparse), a.bucket_bytes_cap,
                                     a.find_unused_parameters, a.gradient_as_bucket_view,
                                     std::move(a.names), a.first_bucket_bytes_cap);
  }
}

// Members that the Reducer keeps protected. A derived class may form pointers to them, which then
// fit any Reducer.
class ReducerView : public c10d::Reducer {
 public:
  static bool is_sampled(c10d::Reducer& reducer) {
    return (reducer.*&ReducerView::should_collect_runtime_stats)();
  }
  // Indices of the parameters that the last prepare_for_backward found to be outside the graph.
  static const std::vector<size_t>& unused_parameters(c10d::Reducer& reducer) {
    return reducer.*&ReducerView::unused_parameters_;
  }
};

struct BackendKind {
  const char* name;
  c10::DeviceType device;
  bool is_nccl;
};
inline constexpr BackendKind kGloo{"gloo", c10::DeviceType::CPU, false};
inline constexpr BackendKind kNccl{"nccl", c10::DeviceType::CUDA, true};

// In 1.x a backend (Gloo) is the process group. From 2.0 on, a process group holds backends.
template <class Backend, class Group = c10d::ProcessGroup>
c10::intrusive_ptr<Group> as_process_group(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                           int world_size,
                                           const c10::intrusive_ptr<Backend>& backend,
                                           const BackendKind& kind = kGloo) {
  if constexpr (std::is_base_of_v<Group, Backend>) {
    return backend;
  } else {
    c10::intrusive_ptr<Group> group;
    if constexpr (requires { typename Group::Options; }) {  // 2.0 to 2.5
      group = c10::make_intrusive<Group>(store, rank, world_size,
                                         c10::make_intrusive<typename Group::Options>(kind.name));
    } else {
      group = c10::make_intrusive<Group>(store, rank, world_size);
    }
    const auto type = kind.is_nccl ? Group::BackendType::NCCL : Group::BackendType::GLOO;
    group->setBackend(kind.device, type, backend);
    // Without it the group calls itself "undefined", and the DDP logging data lacks the fields that
    // are Gloo's, or NCCL's.
    if constexpr (requires { group->setDefaultBackend(type); }) group->setDefaultBackend(type);
    if constexpr (requires { group->setGroupName("0"); }) group->setGroupName("0");
    return group;
  }
}

// Since 2.0, a group that wraps another one also needs its backends: for calls that it does not
// forward, and for its size and rank.
template <class Group, class Other>
void adopt_backends(Group& group, const Other& other) {
  if constexpr (requires { group.setBackend(c10::DeviceType::CPU, {}, {}); }) {
    for (const auto device : {c10::DeviceType::CPU, c10::DeviceType::CUDA}) {
      try {
        const auto backend = other->getBackend(device);
        const auto type = other->getBackendType();
        group.setBackend(device, type, backend);
        if constexpr (requires { group.setDefaultBackend(type); }) group.setDefaultBackend(type);
      } catch (const c10::Error&) {  // none for this device
      }
    }
  }
}

// Python's torch.autograd._unsafe_preserve_version_counter, in versions where DDP uses it.
class KeepVersions {
 public:
  explicit KeepVersions(std::vector<at::Tensor> tensors) : tensors_(std::move(tensors)) {
    if (!kBufferBroadcastKeepsVersions) return;
    for (const at::Tensor& tensor : tensors_) versions_.push_back(tensor._version());
  }
  ~KeepVersions() {
    for (size_t i = 0; i < versions_.size(); ++i) {
      set_version(tensors_[i].unsafeGetTensorImpl()->version_counter(), versions_[i]);
    }
  }
  KeepVersions(const KeepVersions&) = delete;
  KeepVersions& operator=(const KeepVersions&) = delete;

 private:
  // A copy of a counter shares its number with the original.
  template <class Counter>
  static void set_version(Counter counter, std::int64_t version) {
    if constexpr (requires { counter.set_version(version); }) counter.set_version(version);
  }

  std::vector<at::Tensor> tensors_;
  std::vector<std::int64_t> versions_;
};

}  // namespace ddp_doctor
