// SPDX-License-Identifier: BSD-3-Clause
// The numbered steps are those of docs/ddp.md. Each follows torch/nn/parallel/distributed.py.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <limits>
#include <set>

#include "probes/libtorch/collectives/observed_process_group.h"
#include "probes/libtorch/ddp/data_parallel_state.h"
#include "probes/libtorch/ddp/pass_through.h"

namespace ddp_doctor {
namespace {

constexpr size_t kBroadcastBytes = 250 * 1024 * 1024;
constexpr std::int64_t kBytesPerMb = 1024 * 1024;

struct BucketCaps {
  std::int64_t first = c10d::kDefaultFirstBucketBytes;
  std::int64_t others = c10d::kDefaultBucketBytesCap;
};

BucketCaps bucket_caps(const DistributedDataParallelOptions& options) {
  BucketCaps caps;
  if (options.bucket_cap_mb == 0) return caps;
  caps.others = options.bucket_cap_mb * kBytesPerMb;
  if (kGivenCapBoundsFirstBucket) caps.first = caps.others;
  return caps;
}

// Without the search for unused parameters the order of gradients is unknown, so the first
// iteration uses one bucket (per dtype and device); the reducer rebuilds the buckets before the
// second.
std::vector<size_t> initial_bucket_limits(const DistributedDataParallelOptions& options,
                                          const BucketCaps& caps) {
  if (options.static_graph || !options.find_unused_parameters) {
    return {static_cast<size_t>(std::numeric_limits<std::int64_t>::max())};
  }
  const auto first = static_cast<size_t>(caps.first);
  const auto others = static_cast<size_t>(caps.others);
  if (kGivenCapBoundsFirstBucket && first >= others) return {others};
  return {first, others};
}

void check_trainable(const ModuleState& module) {
  TORCH_CHECK(!module.parameters.empty(),
              "DistributedDataParallel is not needed when a module doesn't have any parameter that "
              "requires a gradient.");
  std::set<std::string> types;
  for (const at::Tensor& parameter : module.all_parameters) {
    types.insert(fmt::format("'{}'", c10::DeviceTypeName(parameter.device().type(), true)));
  }
  TORCH_CHECK(types.size() == 1,
              "DistributedDataParallel's input module must be on the same type of devices, but "
              "input module parameters locate in {",
              fmt::format("{}", fmt::join(types, ", ")), "}.");
}

// In the first iteration of a static graph the order and the set of gradients are still unknown:
// the buckets are reduced when this whole backward pass is over.
void delay_all_reduce(StaticGraph& graph) {
  if (!kStaticGraphCountsForwards && graph.all_reduce_enqueued) return;
  const std::shared_ptr<c10d::Reducer> reducer = graph.reducer.lock();
  if (!reducer) return;
  torch::autograd::Engine::get_default_engine().queue_callback(
      [reducer] { reducer->delay_all_reduce(); });
  graph.all_reduce_enqueued = true;
}

}  // namespace

void DataParallelReducer::State::broadcast(const std::vector<at::Tensor>& tensors, int from) {
  if (!tensors.empty()) c10d::broadcast_coalesced(process_group, tensors, kBroadcastBytes, from);
}

// Step 3: all ranks start from one rank's parameters, frozen ones included, and buffers.
void DataParallelReducer::State::broadcast_module(int from) {
  std::vector<at::Tensor> states;
  for (const at::Tensor& parameter : module.all_parameters) states.push_back(parameter.detach());
  const std::vector<at::Tensor> buffers = module.buffers();
  has_buffers = !buffers.empty();
  if (options.broadcast_buffers || kFirstBroadcastAlwaysSendsBuffers) {
    for (const at::Tensor& buffer : buffers) states.push_back(buffer.detach());
  }
  broadcast(states, from);
}

// Steps 4 and 5.
void DataParallelReducer::State::make_reducer_and_logger() {
  const BucketCaps caps = bucket_caps(options);
  auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(
      module.parameters, initial_bucket_limits(options, caps), module.expect_sparse);
  // Gradients come in about the reverse order of the forward.
  std::reverse(buckets.begin(), buckets.end());
  std::reverse(limits.begin(), limits.end());
  // Python passes names only when debugging (newer versions: always); with them, errors name the
  // parameter.
  std::unordered_map<size_t, std::string> names;
  for (size_t i = 0; i < module.names.size(); ++i) names.emplace(i, module.names[i]);

  reducer = make_reducer({.parameters = module.parameters,
                          .buckets = std::move(buckets),
                          .bucket_limits = std::move(limits),
                          .process_group = process_group,
                          .expect_sparse = module.expect_sparse,
                          .bucket_bytes_cap = caps.others,
                          .find_unused_parameters = options.find_unused_parameters,
                          .gradient_as_bucket_view = options.gradient_as_bucket_view,
                          .names = std::move(names),
                          .first_bucket_bytes_cap = caps.first});
  for (const at::Tensor& parameter : module.parameters)
    accumulators.push_back(torch::autograd::impl::grad_accumulator(parameter));
  static_graph->reducer = reducer;
  logger = std::make_shared<c10d::Logger>(reducer);
  // Not optional: the search for unused parameters uses the logger without asking whether there is
  // one.
  reducer->set_logger(logger);
  logger->set_construction_data_and_log(module.type_name, /*device_ids=*/{}, /*output_device=*/-1,
                                        options.broadcast_buffers, /*has_sync_bn=*/false,
                                        options.static_graph);
}

void DataParallelReducer::State::construct() {
  check_trainable(module);                                                     // 1
  c10d::verify_params_across_processes(process_group, module.parameters, {});  // 2
  broadcast_module(0);                                                         // 3
  make_reducer_and_logger();                                                   // 4, 5
  if (!options.static_graph) return;
  reducer->set_static_graph();  // 6
  logger->set_static_graph();
  if (options.find_unused_parameters) {
    TORCH_WARN(
        "find_unused_parameters is not needed with static_graph, which finds unused parameters by "
        "itself; be sure that they stay the same during the training.");
  }
}

DataParallelReducer::DataParallelReducer(ModuleState module, ProcessGroupPtr process_group,
                                         const DistributedDataParallelOptions& options,
                                         CodePlace where)
    : state_(std::make_unique<State>()) {
  initialize_c10d();
  State& state = *state_;
  state.module = std::move(module);
  state.process_group = unobserved(process_group);
  state.options = options;
  const auto observer = training_observer();
  state.told = observer;
  if (observer) state.number = observer->wrapper_begins(state.module, where);
  state.telling([&] { state.construct(); },
                [&](const std::string& text) { observer->wrapper_failed(state.number, text); });
  if (observer) observer->wrapper_made(state.number, *this, options, process_group);
  if (!observer) ++unobserved_wrappers();
}

DataParallelReducer::~DataParallelReducer() {
  if (const auto& observer = state_->observer()) observer->wrapper_goes(state_->number);
  if (state_->number < 0) --unobserved_wrappers();
}

// PyTorch's logger adds the bytes up over the sampled iterations (up to 2.6), so that a constant
// set of unused parameters seems to grow. Its input is right, though: the parameters that the
// reducer found outside the graph. They are summed here at the same moment, so that the result is
// PyTorch's wherever PyTorch is right.
void DataParallelReducer::State::note_runtime_stats() {
  if (ReducerView::is_sampled(*reducer)) {
    unused_parameter_size = 0;
    for (const size_t index : ReducerView::unused_parameters(*reducer)) {
      const at::Tensor& parameter = module.parameters[index];
      unused_parameter_size +=
          parameter.numel() * static_cast<std::int64_t>(parameter.element_size());
    }
  }
  logger->set_runtime_stats_and_log();
}

// torch::load reads a checkpoint into the existing parameters and gives them new gradient
// accumulators without the reducer's hooks: from then on nothing would be averaged, without an
// error. (Python's load_state_dict copies.)
void DataParallelReducer::State::keep_accumulators() {
  for (size_t i = 0; i < accumulators.size(); ++i)
    restore_grad_accumulator(module.parameters[i], accumulators[i]);
}

// Step c.
void DataParallelReducer::State::broadcast_buffers(int from) {
  at::NoGradGuard no_grad;
  const std::vector<at::Tensor> buffers = module.buffers();
  has_buffers = !buffers.empty();
  KeepVersions keep_versions(buffers);
  broadcast(buffers, from);
}

void DataParallelReducer::State::before_forward() {
  if (synchronizes()) {  // a
    note_runtime_stats();
    ++synchronizing_forwards;
    reducer->prepare_for_forward();
  }
  if (joined) tell_joined_ranks();
  // b: also under no_sync. This is where an unfinished reduction of the iteration before is
  // reported.
  if (at::GradMode::is_enabled()) reducer->rebuild_buckets();
  // c: rank 0 may have joined, and its buffers may be old.
  if (sends_buffers()) broadcast_buffers(joined ? common_rank(true) : 0);
  if (joined) told_to_synchronize(false);
}

void DataParallelReducer::before_forward() {
  State& state = *state_;
  state.keep_accumulators();
  const auto observer = state.observer();
  if (observer) observer->forward_begins(state.number, state.sends_buffers());
  state.telling([&] { state.before_forward(); },
                [&](const std::string& text) { observer->raising(text); });
}

bool DataParallelReducer::State::needs_pass_through() const {
  if (!options.static_graph) return options.find_unused_parameters;
  return kStaticGraphCountsForwards ? synchronizing_forwards == 1
                                    : !static_graph->all_reduce_enqueued;
}

std::vector<at::Tensor> DataParallelReducer::after_forward(std::vector<at::Tensor> outputs) {
  State& state = *state_;
  if (const auto& observer = state.observer()) observer->forward_ends(state.number, outputs);
  state.require_forward_param_sync = state.synchronizes();
  if (state.synchronizes()) {  // e
    const bool search = state.options.find_unused_parameters && !state.options.static_graph;
    state.reducer->prepare_for_backward(search ? outputs : std::vector<at::Tensor>{});
  }
  if (!state.needs_pass_through()) return outputs;
  if (!state.options.static_graph) return pass_through(std::move(outputs), [] {});  // f
  return pass_through(std::move(outputs),
                      [graph = state.static_graph] { delay_all_reduce(*graph); });
}

bool DataParallelReducer::require_backward_grad_sync() const {
  return state_->require_backward_grad_sync;
}

void DataParallelReducer::set_require_backward_grad_sync(bool value) {
  state_->require_backward_grad_sync = value;
}

void DataParallelReducer::register_comm_hook(std::unique_ptr<c10d::CommHookInterface> hook,
                                             const std::string& name) {
  state_->logger->set_comm_hook(name);
  state_->reducer->register_comm_hook(std::move(hook));
}

void DataParallelReducer::register_comm_hook(c10d::BuiltinCommHookType hook) {
  state_->logger->set_comm_hook(hook == c10d::BuiltinCommHookType::ALLREDUCE
                                    ? "BuiltinCommHookType.ALLREDUCE"
                                    : "BuiltinCommHookType.FP16_COMPRESS");
  state_->reducer->register_builtin_comm_hook(hook);
}

const ModuleState& DataParallelReducer::module() const { return state_->module; }

c10::DDPLoggingData DataParallelReducer::logging_data() const {
  c10::DDPLoggingData data = state_->logger->get_ddp_logging_data();
  const auto unused = data.ints_map.find("unused_parameter_size");
  if (unused != data.ints_map.end()) unused->second = state_->unused_parameter_size;
  return data;
}

}  // namespace ddp_doctor
