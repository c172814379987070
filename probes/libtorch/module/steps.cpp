// SPDX-License-Identifier: BSD-3-Clause
// Optimizer steps: where one row of the record ends and the next begins.

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "probes/libtorch/module/session.h"
#include "probes/libtorch/optimizer/hyper_parameters.h"

namespace ddp_doctor {
namespace {

constexpr std::int64_t kFieldsStep = 4;  // by then PyTorch has filled in its logging data

std::vector<at::Tensor> parameters_of(const torch::optim::Optimizer& optimizer) {
  std::vector<at::Tensor> held;
  for (const auto& group : optimizer.param_groups())
    held.insert(held.end(), group.params().begin(), group.params().end());
  return held;
}

// Every write in place counts it up.
std::int64_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : static_cast<std::int64_t>(tensor._version());
}

// A gradient that no backward of this step computed; the zeros of zero_grad do not count.
bool has_gradient(const at::Tensor& parameter) {
  const at::Tensor gradient = parameter.grad();
  if (!gradient.defined()) return false;
  return gradient.layout() != at::kStrided || gradient.detach().ne(0).any().item<bool>();
}

}  // namespace

void Session::optimizer_made(torch::optim::Optimizer& optimizer) {
  passive("optimizer_made", [&] { follow_optimizer(known(optimizer), optimizer); });
}

void Session::optimizer_goes(torch::optim::Optimizer& optimizer) {
  passive("optimizer_goes", [&] { known(optimizer).optimizer = nullptr; });
}

Session::OptimizerState& Session::known(const torch::optim::Optimizer& optimizer) {
  for (const auto& state : optimizers_) {
    if (state->optimizer == &optimizer) return *state;
  }
  optimizers_.push_back(std::make_unique<OptimizerState>());
  optimizers_.back()->optimizer = &optimizer;
  return *optimizers_.back();
}

// ---- a step begins

void Session::step_begins(torch::optim::Optimizer& optimizer) {
  passive("step_begins", [&] {
    if (++step_depth_ > 1) return;
    in_backward_ = false;  // one that raised, and the program went on
    enter(Phase::kOptimizer);
    OptimizerState& state = known(optimizer);
    const bool first = state.number < 0;
    if (first) {
      state.number = optimizers_stepped_++;
      state.begin = history_.beginning();
    }
    const std::string subject = "optimizer " + std::to_string(state.number);
    state.hooked_late = follow_optimizer(state, optimizer);
    fact(subject, "tensors", state.tensors);
    fact(subject, "unknown", "0");
    fact(subject, "groups", hyper_parameters_of(optimizer).dump());
    if (first) {
      fact(subject, "type", nlohmann::json(type_of(optimizer)).dump());
      fact(subject, "state", state_of(optimizer).dump());
    }
    if (!state_written_) write_initial_state();
    if (!recorded()) return;
    // Written by something other than an optimizer, or newer than step 0.
    const auto is_written = [&](const Entry& entry) {
      return !entry.began ||
             (entry.seen_in == number_ - 1 && entry.seen_version != version_of(entry.tensor));
    };
    TensorTable::Pairs pairs, written;
    for (Entry* entry : covered(state)) {
      pairs.emplace_back(entry, entry->tensor);
      if (!is_written(*entry)) continue;
      written.emplace_back(entry, entry->tensor);
      entry->began = true;
    }
    tensors_.observe(Stage::kWeightBefore, take::kSample, pairs);
    if (!written.empty()) tensors_.observe(Stage::kWeightBefore, take::kDigest, written);
  });
}

// An unknown parameter may have replaced one that a wrapper holds.
void Session::follow_wrapped_modules(const std::vector<at::Tensor>& held) {
  const auto unknown = [&](const at::Tensor& parameter) {
    return tensors_.find(parameter) == nullptr;
  };
  if (std::none_of(held.begin(), held.end(), unknown)) return;
  for (std::size_t i = 0; i < wrappers_.size(); ++i) {
    if (wrappers_[i].module.tensors)
      tensors_.follow(wrappers_[i].module, static_cast<int>(i), history_.counts.backwards);
  }
}

// Updates the parameters that it holds. Returns whether some were not hooked during this step's
// backward.
bool Session::follow_optimizer(OptimizerState& state, torch::optim::Optimizer& optimizer) {
  const auto held = parameters_of(optimizer);
  std::vector<const c10::TensorImpl*> identities;
  for (const auto& parameter : held) identities.push_back(parameter.unsafeGetTensorImpl());
  bool news = false;
  follow_wrapped_modules(held);
  for (Entry* entry : state.entries) news = tensors_.hook_again(*entry) || news;
  if (identities == state.held) return news;
  state.held = identities;
  state.entries.clear();
  std::vector<int> ids;
  for (std::size_t i = 0; i < held.size(); ++i) {
    Entry* entry = tensors_.find(held[i]);
    news = news || entry == nullptr;
    if (entry == nullptr) entry = tensors_.add_unknown(held[i], i, history_.counts.backwards);
    state.entries.push_back(entry);
    ids.push_back(entry->id());
  }
  state.tensors = nlohmann::json(ids).dump();
  for (const auto& other : optimizers_) other->covered_of = 0;
  return news;
}

// Writes the weights and buffers before training: step 0.
void Session::write_initial_state() {
  state_written_ = true;
  writer_.swap();  // what was seen of step 1 so far must not go into step 0's row
  TensorTable::Pairs parameters, buffers;
  for (const auto& entry : tensors_.entries()) {
    (entry->is_parameter() ? parameters : buffers).emplace_back(entry.get(), entry->tensor);
    entry->began = true;
    entry->seen_version = version_of(entry->tensor);
  }
  const int keep = settings_.keeps_initial_state ? take::kKeep : 0;
  tensors_.observe(Stage::kWeight, kSeen | keep, parameters);
  tensors_.observe(Stage::kBuffer, kSeen, buffers);
  StepRecord zero;
  zero.started_ns = started_ns_;
  writer_.write_step(zero);
  writer_.swap();
}

void Session::closure_begins() {
  passive("closure_begins", [&] {
    step_depth_ = 0;  // what it does is no part of the update
    history_.token("L");
  });
}

void Session::gradients_ready(torch::optim::Optimizer& optimizer) {
  passive("gradients_ready", [&] {
    updating_ = step_depth_ > 0;
    if (!recorded()) return;
    TensorTable::Pairs pairs;
    for (const Entry* entry : covered(known(optimizer))) {
      if (const at::Tensor gradient = entry->tensor.grad(); gradient.defined())
        pairs.emplace_back(entry, gradient);
    }
    tensors_.observe(Stage::kGradient, kSeen | (keep_gradients_ ? take::kKeep : 0), pairs);
  });
}

// The optimizer's parameters, and the others in its wrappers that no optimizer holds.
const std::vector<Entry*>& Session::covered(OptimizerState& state) {
  if (state.covered_of == tensors_.entries().size()) return state.covered;
  state.covered_of = tensors_.entries().size();
  state.covered.clear();
  std::set<const Entry*> own(state.entries.begin(), state.entries.end());
  std::set<const Entry*> elsewhere;
  std::set<std::optional<int>> wrappers;
  for (const Entry* entry : own) wrappers.insert(entry->info.wrapper);
  for (const auto& other : optimizers_) {
    if (other.get() == &state) continue;
    elsewhere.insert(other->entries.begin(), other->entries.end());
    if (other->optimizer == nullptr) continue;
    for (const auto& parameter : parameters_of(*other->optimizer)) {
      if (const Entry* entry = tensors_.find(parameter)) elsewhere.insert(entry);
    }
  }
  for (const Entry* entry : own) elsewhere.erase(entry);
  for (const auto& entry : tensors_.entries()) {
    if (!entry->is_parameter() || elsewhere.contains(entry.get())) continue;
    if (own.contains(entry.get()) || elsewhere.empty() || wrappers.contains(entry->info.wrapper))
      state.covered.push_back(entry.get());
  }
  return state.covered;
}

// ---- a step ends

void Session::step_ends(torch::optim::Optimizer& optimizer) {
  passive("step_ends", [&] {
    step_depth_ = std::max(0, step_depth_ - 1);
    if (step_depth_ > 0) {
      fresh_ = false;  // an optimizer inside another one has used the gradients
      return;
    }
    updating_ = false;
    const auto now = steady_clock_now();
    const auto probe_ns = probe_ns_;
    OptimizerState& state = known(optimizer);
    enter(Phase::kRecording);
    StepRecord row = row_of(state);
    row.duration_ns = std::max<std::int64_t>(0, now - began_ns_ - probe_ns);
    row.examined = recorded() && !covered(state).empty() && !state.hooked_late;
    if (row.examined) look_after(state, row);
    const auto looked = steady_clock_now();
    row.probe_ns = probe_ns + (looked - now) + writing_ns_;
    writer_.write_step(row);
    last_row_ = std::move(row);

    history_.token("S" + std::to_string(state.number));
    for (Entry* entry : covered(state)) entry->arrivals_at_step = entry->arrivals;
    state.begin = history_.now();
    std::vector<Mark> begins;
    for (const auto& other : optimizers_) {
      if (other->number >= 0) begins.push_back(other->begin);
    }
    history_.step_ended(begins);
    for (const auto& entry : tensors_.entries()) entry->read = false;
    in_output_.reset();
    if (recorded()) graphs_to_look_at_ = std::max(0, graphs_to_look_at_ - 1);
    fresh_ = gradients_seen_ = false;
    accumulating_.clear();
    next_step();
    if (number_ == kFieldsStep) {
      for (std::size_t i = 0; i < wrappers_.size(); ++i)
        write_fields(static_cast<int>(i), "runtime");
    }
    enter(Phase::kBatch);
    restart_clock();
    writing_ns_ = began_ns_ - looked;
    probe_ns_ = -(began_ns_ - now);  // which passive() adds
  });
}

void Session::restart_clock() {
  began_ns_ = steady_clock_now();
  started_ns_ = wall_clock_now();
}

void Session::begin_training() {
  passive("begin_training", [&] { write_initial_state(); });
  restart_clock();
  probe_ns_ = 0;
}

StepRecord Session::row_of(const OptimizerState& state) const {
  const Counts& counts = history_.counts;
  const Counts& before = state.begin.counts;
  StepRecord row;
  row.step = number_;
  row.started_ns = started_ns_;
  row.backwards = counts.backwards - before.backwards;
  row.unsynchronized_backwards = counts.unsynchronized - before.unsynchronized;
  row.forwards_through_wrapper = counts.through - before.through;
  row.forwards_around_wrapper = counts.around - before.around;
  row.collectives = counts.collectives - before.collectives;
  row.collective_bytes = counts.bytes - before.bytes;
  row.optimizer = state.number;
  row.trace = history_.trace(state.begin);
  row.calls = history_.calls(state.begin);
  if (!history_.losses.empty()) {
    double sum = 0;
    for (const double loss : history_.losses) sum += loss;
    row.loss = sum / static_cast<double>(history_.losses.size());
  }
  return row;
}

// How each parameter was used in the step.
std::vector<Usage> Session::usages(const OptimizerState& state,
                                   const std::vector<Entry*>& covered) {
  const Counts& before = state.begin.counts;
  const Counts& counts = history_.counts;
  const std::set<const Entry*> held(state.entries.begin(), state.entries.end());
  // A reduction, or a hand-written collective after a backward, gives an unused parameter the
  // gradients of other ranks.
  const bool shared = counts.reduced > before.reduced || (counts.backwards > before.backwards &&
                                                          counts.collectives > before.collectives);
  std::vector<Usage> found;
  for (const Entry* entry : covered) {
    if (!entry->info.trainable && entry->arrivals == 0 && !entry->tensor.requires_grad()) continue;
    if (entry->since > before.backwards) continue;  // what it got before that is not known
    Usage usage;
    usage.tensor = entry->id();
    usage.arrivals = entry->arrivals - entry->arrivals_at_step;
    usage.used = usage.arrivals > 0;
    if (usage.used) {
      usage.reached = usage.in_output = true;
    } else {
      if (in_output_) usage.in_output = in_output_->contains(entry->id());
      if (operations_) usage.reached = entry->read || usage.in_output.value_or(false);
    }
    usage.frozen = entry->info.trainable && !entry->tensor.requires_grad();
    usage.last_backward = std::max(0, entry->last_backward - before.backwards);
    usage.replaced = entry->replaced;
    usage.in_optimizer = held.contains(entry);
    usage.assigned = !usage.used && !shared && has_gradient(entry->tensor);
    found.push_back(usage);
  }
  return found;
}

void Session::look_after(OptimizerState& state, StepRecord& row) {
  const auto& entries = covered(state);
  row.usages = usages(state, entries);
  std::vector<int> unused;
  for (const auto& usage : row.usages) {
    if (!usage.used) unused.push_back(usage.tensor);
  }
  if (unused_before_ && *unused_before_ != unused) {
    graphs_to_look_at_ = kGraphs + 1;  // and this step, which counts, too
  }
  unused_before_ = unused;
  TensorTable::Pairs pairs;
  for (Entry* entry : entries) {
    pairs.emplace_back(entry, entry->tensor);
    entry->seen_in = number_;
    entry->seen_version = version_of(entry->tensor);
  }
  const int keep = number_ == settings_.last ? take::kKeepLast : take::kKeep;
  tensors_.observe(Stage::kWeight, kSeen | keep, pairs);
  observe_buffers();
  last_examined_ = number_;
  if (number_ == wanted_) leave_values(entries);
}

void Session::observe_buffers() {
  // A script re-assigns them.
  for (std::size_t i = 0; i < wrappers_.size(); ++i) {
    if (wrappers_[i].module.tensors)
      tensors_.follow(wrappers_[i].module, static_cast<int>(i), history_.counts.backwards);
  }
  for (const auto& module : attached_) tensors_.follow(module, {}, history_.counts.backwards);
  TensorTable::Pairs pairs;
  for (const auto& entry : tensors_.entries()) {
    if (!entry->is_parameter()) pairs.emplace_back(entry.get(), entry->tensor);
  }
  tensors_.observe(Stage::kBuffer, take::kDigest, pairs);
}

// The watcher saw that replicas differ, and requests the values of the affected parameters.
void Session::leave_values(const std::vector<Entry*>& covered) {
  std::ifstream in(settings_.folder / "values.json");
  const auto request = nlohmann::json::parse(in);
  if (request.at("step").get<std::int64_t>() != number_) return;
  const auto names = request.at("parameters").get<std::set<std::string>>();
  auto room = request.at("elements").get<std::int64_t>();
  TensorTable::Pairs pairs;
  for (const Entry* entry : covered) {
    if (!names.contains(entry->info.name) || entry->info.numel > room) continue;
    room -= entry->info.numel;
    pairs.emplace_back(entry, entry->tensor);
  }
  tensors_.observe(Stage::kWeight, take::kKeepWanted, pairs);
}

// Examines the final weights, if the last step was not examined.
void Session::last_look() {
  const std::int64_t last = number_ - 1;
  if (last_examined_ >= last || !last_row_) return;
  TensorTable::Pairs pairs;
  for (const auto& entry : tensors_.entries()) {
    if (entry->is_parameter() && entry->info.trainable)
      pairs.emplace_back(entry.get(), entry->tensor);
  }
  if (pairs.empty()) return;
  writer_.forget();
  tensors_.observe(Stage::kWeight, kSeen | take::kKeepLast, pairs);
  observe_buffers();
  last_row_->examined = true;
  writer_.write_step(*last_row_);
  last_examined_ = last;
}

}  // namespace ddp_doctor
