// SPDX-License-Identifier: BSD-3-Clause
// Wrappers, forwards through them, and forwards that bypass them.
//
// LibTorch has no hooks around a module's forward, so a bypass is detected by operations: one reads
// a parameter of the wrapper, with gradients enabled, while no forward of the wrapper runs
// (lib/recorder/passes.h).

#include <nlohmann/json.hpp>

#include "probes/libtorch/collectives/observed_process_group.h"
#include "probes/libtorch/module/session.h"

namespace ddp_doctor {
namespace {

// The observer of this thread's operations: RecordFunction callbacks are plain functions.
thread_local Session* watching = nullptr;

template <class Visit>
void for_each_tensor_in(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) visit(tensor);
  }
}

}  // namespace

int Session::wrapper_begins(const ModuleState& module, const CodePlace& where) {
  const int number = static_cast<int>(wrappers_.size());
  wrappers_.emplace_back();
  recorder_.passes.add_wrapper();
  passive("wrapper_begins", [&] {
    enter(Phase::kConnecting);
    Wrapper& made = wrappers_.back();
    made.module = module;
    tensors_.add_module(module, number, recorder_.history.counts.backwards);
    tensors_.describe();
    const std::string name = std::to_string(number);
    journal_.site("wrap " + name, where.file, where.line);
    journal_.fact("wrapper " + name, "module", nlohmann::json(module.type_name).dump());
    made.construction = recorder_.call_begins(recorder_.call_of(number, "ddp.construct"), false);
  });
  return number;
}

void Session::wrapper_made(int wrapper, DataParallelReducer& reducer,
                           const DistributedDataParallelOptions& options,
                           const ProcessGroupPtr& group) {
  passive("wrapper_made", [&] {
    Wrapper& made = wrappers_[static_cast<std::size_t>(wrapper)];
    made.reducer = &reducer;
    recorder_.call_ends(made.construction);
    // Its first broadcast reads all of them.
    for (const auto& entry : tensors_.entries()) {
      if (entry->in_wrapper == wrapper) entry->read = false;
    }
    const std::string subject = "wrapper " + std::to_string(wrapper);
    journal_.fact(subject, "type", "\"DistributedDataParallel\"");
    journal_.fact(subject, "arguments",
                  nlohmann::json({{"find_unused_parameters", options.find_unused_parameters},
                                  {"static_graph", options.static_graph},
                                  {"broadcast_buffers", options.broadcast_buffers},
                                  {"gradient_as_bucket_view", options.gradient_as_bucket_view}})
                      .dump());
    const std::vector<int> ranks = ranks_of_group(group, settings_.header.world_size);
    if (!ranks.empty()) journal_.fact(subject, "ranks", nlohmann::json(ranks).dump());
    const auto parameters = static_cast<int>(made.module.parameters.size());
    recorder_.wrapper_made(wrapper, parameters,
                           ranks.empty() ? std::nullopt : std::optional(ranks_text(ranks)));
    write_fields(wrapper, "construction");
    enter(Phase::kBatch);
  });
}

void Session::wrapper_failed(int wrapper, const std::string& reason) {
  raising(reason);
  passive("wrapper_failed", [&] {
    recorder_.call_ends(wrappers_[static_cast<std::size_t>(wrapper)].construction);
    tensors_.unwrap(wrapper);
    enter(Phase::kBatch);
  });
}

void Session::wrapper_goes(int wrapper) {
  passive("wrapper_goes", [&] {
    write_fields(wrapper, "runtime");
    Wrapper& made = wrappers_[static_cast<std::size_t>(wrapper)];
    made.reducer = nullptr;
    made.module.tensors = nullptr;  // they look into a module that may go with it
    made.module.buffers = nullptr;
  });
}

// PyTorch's logging data of the wrapper; the last one is kept.
void Session::write_fields(int wrapper, const char* moment) {
  const Wrapper& made = wrappers_[static_cast<std::size_t>(wrapper)];
  if (made.reducer == nullptr) return;
  std::vector<DdpField> fields;
  const auto data = made.reducer->logging_data();
  for (const auto& [key, value] : data.ints_map)
    fields.push_back({moment, key, std::to_string(value), true, wrapper});
  for (const auto& [key, value] : data.strs_map)
    fields.push_back({moment, key, value, false, wrapper});
  recorder_.write_ddp_fields(fields);
}

std::string Session::ranks_text(const std::vector<int>& ranks) const {
  std::string text;
  if (static_cast<int>(ranks.size()) == settings_.header.world_size) return text;
  for (const int rank : ranks) text += (text.empty() ? "" : ",") + std::to_string(rank);
  return text;
}

void Session::forward_begins(int wrapper, bool paired) {
  passive("forward_begins", [&] {
    Wrapper& made = wrappers_[static_cast<std::size_t>(wrapper)];
    enter(Phase::kForward);
    recorder_.passes.forget_backward();
    const bool quiet = !at::GradMode::is_enabled();
    LoggedCall call = recorder_.call_of(wrapper, "ddp.forward");
    call.reduce = quiet ? "no_grad" : "";
    made.forward = recorder_.call_begins(call, paired && recorder_.pairs_calls_of(wrapper));
    if (quiet) return recorder_.passes.forward_without_gradients(wrapper);
    recorder_.passes.forward_begins(
        wrapper, made.reducer != nullptr && made.reducer->require_backward_grad_sync());
    if (recorded() && made.module.tensors) {
      tensors_.follow(made.module, wrapper, recorder_.history.counts.backwards);
      tensors_.describe();
    }
  });
}

void Session::forward_ends(int wrapper, const std::vector<at::Tensor>& outputs) {
  passive("forward_ends", [&] {
    recorder_.passes.forward_ends(wrapper);
    recorder_.call_ends(wrappers_[static_cast<std::size_t>(wrapper)].forward);
    look_at_graph(outputs);
    enter(Phase::kBatch);
  });
}

void Session::forward_returns(const std::vector<at::Tensor>& outputs) {
  passive("forward_returns", [&] { look_at_graph(outputs); });
}

// Which parameters the outputs depend on, read from autograd's graph.
void Session::look_at_graph(const std::vector<at::Tensor>& outputs) {
  if (!recorder_.schedule.reads_graphs() || !at::GradMode::is_enabled()) return;
  if (!in_output_) in_output_.emplace();
  std::vector<const torch::autograd::Node*> pending;
  std::unordered_set<const torch::autograd::Node*> visited;
  const auto visit = [&](const torch::autograd::Node* node) {
    if (node != nullptr && visited.insert(node).second) pending.push_back(node);
  };
  for (const auto& output : outputs) visit(output.grad_fn().get());
  while (!pending.empty()) {
    const auto* node = pending.back();
    pending.pop_back();
    if (const Entry* entry = tensors_.of_node(node)) in_output_->insert(entry->id);
    for (const auto& edge : node->next_edges()) visit(edge.function.get());
  }
}

void Session::watch_operations() {
  watching = this;
  operations_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(
          [](const at::RecordFunction& operation) -> std::unique_ptr<at::ObserverContext> {
            if (watching != nullptr) watching->operation_reads(operation);
            return nullptr;
          })
          .needsInputs(true)
          .scopes({at::RecordScope::FUNCTION}));
}

void Session::unwatch_operations() {
  if (operations_) at::removeCallback(*std::exchange(operations_, std::nullopt));
  if (watching == this) watching = nullptr;
}

void Session::operation_reads(const at::RecordFunction& operation) noexcept {
  // In a backward, and in an optimizer's step, gradients are disabled.
  if (!at::GradMode::is_enabled()) return;
  const std::lock_guard lock(mutex_);
  if (closed_ || busy_ || recorder_.passes.in_backward() || recorder_.passes.in_step()) return;
  try {
    for (const auto& input : operation.inputs())
      for_each_tensor_in(input, [this](const at::Tensor& tensor) { saw(tensor); });
  } catch (...) {  // an input that is no value of ours
  }
}

void Session::saw(const at::Tensor& tensor) {
  Entry* entry = tensors_.find(tensor);
  if (entry != nullptr && entry->is_parameter)
    recorder_.passes.reads(*entry, entry->tensor.requires_grad());
}

}  // namespace ddp_doctor
