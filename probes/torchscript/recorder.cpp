// SPDX-License-Identifier: BSD-3-Clause
#include "probes/torchscript/recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <thread>
#include <unordered_set>

#include "lib/version.h"
#include "probes/libtorch/module/tensor_view.h"
#include "probes/torchscript/torch_text.h"

namespace ddp_doctor {
namespace {

std::string owner_of(const std::string& name) {
  const auto dot = name.rfind('.');
  return dot == std::string::npos ? std::string() : name.substr(0, dot);
}

TensorInfo describe(const at::Tensor& tensor, std::string name, std::string kind, int id) {
  TensorInfo info;
  info.id = id;
  info.module = owner_of(name);
  info.name = std::move(name);
  info.kind = std::move(kind);
  info.dtype = dtype_name(tensor.scalar_type());
  info.sizes = tensor.sizes().vec();
  info.numel = tensor.numel();
  info.trainable = tensor.requires_grad();
  return info;
}

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// Each tensor once, under its first name.
template <class Entries, class Wanted>
NamedTensors each_once(const Entries& entries, const Wanted& wanted) {
  NamedTensors tensors;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& entry : entries) {
    if (wanted(entry.value) && seen.insert(entry.value.unsafeGetTensorImpl()).second) {
      tensors.emplace_back(entry.name, entry.value);
    }
  }
  return tensors;
}

NamedTensors frozen_parameters(const torch::jit::Module& module) {
  return each_once(module.named_parameters(),
                   [](const at::Tensor& tensor) { return !tensor.requires_grad(); });
}

NamedTensors buffers_of(const torch::jit::Module& module) {
  return each_once(module.named_buffers(),
                   [](const at::Tensor& tensor) { return tensor.defined(); });
}

std::int64_t bytes_of(const std::vector<TensorInfo>& tensors) {
  std::int64_t bytes = 0;
  for (const auto& tensor : tensors) {
    if (tensor.kind == "parameter")
      bytes +=
          tensor.numel * static_cast<std::int64_t>(element_size(dtype_from_name(tensor.dtype)));
  }
  return bytes;
}

std::int64_t wall_clock_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

constexpr std::chrono::seconds kWaitForPeers{2};

std::uint64_t digest_of_weights(const std::vector<Observation>& observations) {
  std::vector<std::array<std::uint8_t, 16>> all;
  for (const Observation& observation : observations) {
    if (observation.stage == Stage::kWeight) all.push_back(observation.digest.bits);
  }
  const std::int64_t sizes[] = {static_cast<std::int64_t>(all.size() * sizeof all[0])};
  const std::int64_t strides[] = {1};
  const auto bits = digest({all.data(), DType::kUInt8, sizes, strides}).bits;
  std::uint64_t word = 0;
  std::memcpy(&word, bits.data(), sizeof word);
  return word;
}

RecordHeader header_of(const WorkerOptions& options, const std::string& substitutions) {
  RecordHeader header;
  header.rank = options.rank;
  header.world_size = options.world_size;
  header.probe = "script";
  header.program = options.program;
  header.details = {
      {"backend", options.backend == "nccl" ? "NCCL" : "Gloo on 127.0.0.1"},
      {"torch_version", torch_version()},
      {"tool_version", kVersion},
      {"strategy", options.strategy},
      {"summary", fmt::format("{}, lr {:g}, seed {}", options.optimizer, options.lr, options.seed)},
      {"note", substitutions}};
  return header;
}

}  // namespace

std::vector<TensorInfo> describe_tensors(const torch::jit::Module& module,
                                         const ModuleState& state) {
  std::vector<TensorInfo> tensors;
  for (std::size_t i = 0; i < state.parameters.size(); ++i) {
    tensors.push_back(describe(state.parameters[i], state.names[i], "parameter",
                               static_cast<int>(tensors.size())));
    tensors.back().ddp_index = static_cast<int>(i);
  }
  for (const auto& [name, tensor] : frozen_parameters(module)) {
    tensors.push_back(describe(tensor, name, "parameter", static_cast<int>(tensors.size())));
  }
  for (const auto& [name, tensor] : buffers_of(module)) {
    tensors.push_back(describe(tensor, name, "buffer", static_cast<int>(tensors.size())));
  }
  return tensors;
}

std::vector<std::int64_t> steps_to_keep(std::int64_t steps, std::int64_t every,
                                        std::int64_t bytes_per_step, std::int64_t budget) {
  std::vector<std::int64_t> recorded = {0};
  for (std::int64_t step = 1; step <= steps; ++step) {
    if (step == 1 || step == steps || step % every == 0) recorded.push_back(step);
  }
  const auto most = static_cast<std::size_t>(budget / std::max<std::int64_t>(bytes_per_step, 1));
  if (most >= recorded.size()) return recorded;
  if (most == 0) return {};
  if (most == 1) return {steps};
  std::set<std::int64_t> kept;
  recorded.erase(recorded.begin());  // step 0 goes first: initial weights are rarely the question
  for (std::size_t i = 0; i < most; ++i)
    kept.insert(recorded[i * (recorded.size() - 1) / (most - 1)]);
  return {kept.begin(), kept.end()};
}

Recorder::Recorder(const WorkerOptions& options, const torch::jit::Module& module,
                   const ModuleState& state, const std::string& substitutions)
    : options_(options),
      module_(module),
      state_(state),
      tensors_(describe_tensors(module, state)),
      progress_(progress_file(options.record, options.rank)),
      writer_(options.record, header_of(options, substitutions)),
      usage_(state.parameters, [this](std::size_t parameter) { on_gradient(parameter); }),
      local_gradients_(state.parameters.size()),
      local_values_(state.parameters.size()),
      local_seen_(state.parameters.size(), 0) {
  for (const auto& [name, tensor] : frozen_parameters(module)) frozen_.push_back(tensor);
  const std::int64_t budget = options.keep_values_mib << 20;
  const std::int64_t weights = bytes_of(tensors_);
  keep_gradients_ = 2 * weights <= budget / 4;
  keep_weights_ = steps_to_keep(options.steps, options.every, weights,
                                budget - (keep_gradients_ ? 2 * weights : 0));
  writer_.write_tensors(tensors_);
}

bool Recorder::recorded(std::int64_t step) const {
  return step <= 1 || step == options_.steps || step % options_.every == 0;
}

// A tensor that cannot be read is reported once, and the training continues without it.
void Recorder::observe(const at::Tensor& tensor, int id, Stage stage) {
  try {
    step_.observations.push_back({id, stage, digest(LocalTensor(tensor).view())});
  } catch (const std::exception& error) {
    note_trouble(tensors_[static_cast<std::size_t>(id)].name +
                 " cannot be examined: " + message_without_backtrace(error));
  }
}

void Recorder::note_trouble(const std::string& text) {
  if (troubles_.insert(text).second) pending_.push_back(text);
}

void Recorder::keep(const at::Tensor& tensor, int id, Stage stage) {
  try {
    step_.values.push_back({id, stage, LocalTensor(tensor).bytes()});
  } catch (const std::exception&) {  // observe() said so
  }
}

void Recorder::observe_state() {
  int id = 0;
  for (const auto& parameter : state_.parameters) observe(parameter, id++, Stage::kWeight);
  for (const auto& parameter : frozen_) observe(parameter, id++, Stage::kWeight);
  if (std::binary_search(keep_weights_.begin(), keep_weights_.end(), step_.step) &&
      !peers_have_these_weights()) {
    id = 0;
    for (const auto& parameter : state_.parameters) keep(parameter, id++, Stage::kWeight);
    for (const auto& parameter : frozen_) keep(parameter, id++, Stage::kWeight);
  }
  // Collected again: a program may re-assign its buffers. If their number changed, they are
  // different buffers.
  const auto buffers = buffers_of(module_);
  if (buffers.size() + static_cast<std::size_t>(id) != tensors_.size()) {
    note_trouble("buffers are no longer examined: their number changed");
    return;
  }
  for (const auto& [name, buffer] : buffers) observe(buffer, id++, Stage::kBuffer);
}

// Values show how much weights differ. If all ranks have the same bits they are not needed, and
// writing a large model's weights takes longer than a step. The rank waits for its peers' progress
// maps between steps, when no time is measured, until one stops responding.
bool Recorder::peers_have_these_weights() {
  const std::uint64_t mine = digest_of_weights(step_.observations);
  progress_.publish_state(step_.step, mine);
  const auto latest = Clock::now() + kWaitForPeers;
  for (int rank = 0; rank < options_.world_size && peers_answer_; ++rank) {
    const auto file = progress_file(options_.record, rank);
    auto state = published_state(file, step_.step);
    while (!state && Clock::now() < latest) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      state = published_state(file, step_.step);
    }
    peers_answer_ = state.has_value();
    if (state != mine) return false;
  }
  return peers_answer_;
}

void Recorder::on_gradient(std::size_t parameter) noexcept {
  if (!recorded(step_.step)) return;
  const auto begin = Clock::now();
  try {
    const LocalTensor local(state_.parameters[parameter].grad());
    local_gradients_[parameter] = {static_cast<int>(parameter), Stage::kLocalGradient,
                                   digest(local.view())};
    if (keep_gradients_ && step_.step == 1) {
      local_values_[parameter] = {static_cast<int>(parameter), Stage::kLocalGradient,
                                  local.bytes()};
    }
    local_seen_[parameter] = 1;
  } catch (const std::exception& error) {
    local_seen_[parameter] = 0;
    note_trouble(state_.names[parameter] +
                 ": its local gradient cannot be examined: " + message_without_backtrace(error));
  }
  probing_ += Clock::now() - begin;
}

void Recorder::begin_training() {
  step_ = {};
  observe_state();
  writer_.write_step(step_);
}

void Recorder::begin_step(std::int64_t step) {
  step_ = {};
  step_.step = step;
  step_.started_ns = wall_clock_ns();
  std::fill(local_seen_.begin(), local_seen_.end(), 0);
  probing_ = {};
  usage_.begin_step();
  started_ = Clock::now();
}

void Recorder::before_optimizer() {
  if (!recorded(step_.step)) return;
  const auto begin = Clock::now();
  for (std::size_t i = 0; i < state_.parameters.size(); ++i) {
    if (local_seen_[i] != 0) {
      step_.observations.push_back(local_gradients_[i]);
      if (!local_values_[i].bytes.empty())
        step_.values.push_back(std::exchange(local_values_[i], {}));
    }
    const auto& gradient = state_.parameters[i].grad();
    if (!gradient.defined()) continue;
    observe(gradient, static_cast<int>(i), Stage::kGradient);
    if (keep_gradients_ && step_.step == 1) keep(gradient, static_cast<int>(i), Stage::kGradient);
  }
  probing_ += Clock::now() - begin;
}

void Recorder::end_step(double loss, int backwards, int unsynchronized,
                        const Strategy::Counts& counts) {
  const auto ended = Clock::now();
  progress_.enter(Phase::kRecording, step_.step);
  step_.duration_ns = std::chrono::nanoseconds(ended - started_ - probing_).count();
  step_.loss = loss;
  step_.backwards = backwards;
  step_.unsynchronized_backwards = unsynchronized;
  step_.forwards_through_wrapper = counts.forwards_through_wrapper;
  step_.forwards_around_wrapper = counts.forwards_around_wrapper;
  step_.collectives = counts.collectives;
  step_.collective_bytes = counts.collective_bytes;
  step_.examined = recorded(step_.step);
  if (step_.examined) {
    step_.usages = usage_.end_step();
    observe_state();
  }
  step_.probe_ns = std::chrono::nanoseconds(probing_ + writing_ + (Clock::now() - ended)).count();
  const auto begin = Clock::now();
  writer_.write_step(step_);
  for (const auto& text : std::exchange(pending_, {})) event("warning", text);
  writing_ = Clock::now() - begin;
}

void Recorder::ddp_fields(const std::string& moment, const DataParallelReducer& reducer) {
  std::vector<DdpField> fields;
  const auto data = reducer.logging_data();
  for (const auto& [key, value] : data.ints_map)
    fields.push_back({moment, key, std::to_string(value), true});
  for (const auto& [key, value] : data.strs_map) fields.push_back({moment, key, value, false});
  writer_.write_ddp_fields(fields);
}

void Recorder::event(const std::string& kind, const std::string& text) {
  const Phase phase = progress_.phase();
  writer_.write_event(
      {std::max<std::int64_t>(progress_.step(), 1), wall_clock_ns(), kind, name_of(phase), text});
}

}  // namespace ddp_doctor
