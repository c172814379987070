// SPDX-License-Identifier: BSD-3-Clause
// Optimizer steps: where one row of the record ends and the next begins.

#include <algorithm>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

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
    if (!recorder_.passes.step_begins()) return;
    recorder_.passes.forget_backward();
    enter(Phase::kOptimizer);
    OptimizerState& state = known(optimizer);
    const bool first = state.number < 0;
    if (first) state.number = recorder_.add_optimizer();
    const std::string subject = "optimizer " + std::to_string(state.number);
    state.hooked_late = follow_optimizer(state, optimizer);
    journal_.fact(subject, "tensors", state.tensors);
    journal_.fact(subject, "unknown", "0");
    journal_.fact(subject, "groups", hyper_parameters_of(optimizer).dump());
    if (first) {
      journal_.fact(subject, "type", nlohmann::json(type_of(optimizer)).dump());
      journal_.fact(subject, "state", state_of(optimizer).dump());
    }
    if (!state_written_) write_initial_state();
    if (!recorded()) return;
    TensorTable::Pairs pairs, written;
    for (Entry* entry : covered(state)) {
      pairs.emplace_back(entry, entry->tensor);
      if (!entry->is_written(recorder_.schedule.number(), version_of(entry->tensor))) continue;
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
      tensors_.follow(wrappers_[i].module, static_cast<int>(i), recorder_.history.counts.backwards);
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
    if (entry == nullptr)
      entry = tensors_.add_unknown(held[i], i, recorder_.history.counts.backwards);
    state.entries.push_back(entry);
    ids.push_back(entry->id);
  }
  state.tensors = nlohmann::json(ids).dump();
  for (const auto& other : optimizers_) other->covered_of = 0;
  return news;
}

// Writes the weights and buffers before training: step 0.
void Session::write_initial_state() {
  state_written_ = true;
  write_placements();
  recorder_.swap();  // what was seen of step 1 so far must not go into step 0's row
  TensorTable::Pairs parameters, buffers;
  for (const auto& entry : tensors_.entries()) {
    (entry->is_parameter ? parameters : buffers).emplace_back(entry.get(), entry->tensor);
    entry->began = true;
    entry->seen_version = version_of(entry->tensor);
  }
  const int keep = settings_.keeps_initial_state ? take::kKeep : 0;
  tensors_.observe(Stage::kWeight, kSeen | keep, parameters);
  tensors_.observe(Stage::kBuffer, kSeen, buffers);
  StepRecord zero;
  zero.started_ns = started_ns_;
  zero.optimizer = -1;
  recorder_.take_row(zero);
  recorder_.write_row(true, 0);
  recorder_.swap();
}

void Session::place(const at::Tensor& parameter, const std::vector<int>& shape,
                    const std::vector<std::string>& names, std::vector<int> ranks,
                    const std::vector<std::string>& placements) {
  passive("placement", [&] {
    const auto size = std::accumulate(shape.begin(), shape.end(), 1, std::multiplies<>());
    if (ranks.empty()) {
      ranks.resize(static_cast<std::size_t>(size));
      std::iota(ranks.begin(), ranks.end(), 0);
    }
    const bool fits = !shape.empty() && size == static_cast<int>(ranks.size()) &&
                      placements.size() == shape.size() &&
                      (names.empty() || names.size() == shape.size());
    if (!fits) {
      journal_.warn(
          "Examination::placement: not used: give one placement, and one name or none, for each "
          "dimension of the mesh, and as many ranks as its shape has places");
      return;
    }
    // As DeviceMesh.mesh.tolist() has them: the ranks of the last dimension together, and so on.
    nlohmann::json mesh = ranks;
    for (std::size_t dimension = shape.size(); dimension-- > 1;) {
      nlohmann::json rows = nlohmann::json::array();
      for (std::size_t i = 0; i < mesh.size(); ++i) {
        if (i % static_cast<std::size_t>(shape[dimension]) == 0)
          rows.push_back(nlohmann::json::array());
        rows.back().push_back(mesh[i]);
      }
      mesh = std::move(rows);
    }
    mesh = {{"mesh", std::move(mesh)}, {"dimensions", names}};
    auto known = std::find(meshes_.begin(), meshes_.end(), mesh);
    if (known == meshes_.end()) {
      journal_.fact("mesh", std::to_string(meshes_.size()), mesh.dump());
      known = meshes_.insert(known, std::move(mesh));
    }
    placements_.emplace_back(parameter, nlohmann::json{{"source", "Examination::placement"},
                                                       {"placements", placements},
                                                       {"mesh", known - meshes_.begin()}});
    if (state_written_) write_placements();
  });
}

void Session::write_placements() {
  for (const auto& [parameter, placement] : std::exchange(placements_, {})) {
    const Entry* entry = tensors_.find(parameter);
    if (entry == nullptr) {
      journal_.warn(
          "Examination::placement: not used for a tensor that no examined module and no optimizer "
          "holds");
      continue;
    }
    const auto& name = entry->info.name;
    journal_.fact("placement", name.substr(name.find(':') + 1), placement.dump());
  }
}

void Session::closure_begins() {
  passive("closure_begins", [&] { recorder_.passes.closure_begins(); });
}

void Session::gradients_ready(torch::optim::Optimizer& optimizer) {
  passive("gradients_ready", [&] {
    recorder_.passes.gradients_taken();
    if (!recorded()) return;
    TensorTable::Pairs pairs;
    for (const Entry* entry : covered(known(optimizer))) {
      if (const at::Tensor gradient = entry->tensor.grad(); gradient.defined())
        pairs.emplace_back(entry, gradient);
    }
    tensors_.observe(Stage::kGradient, kSeen | (keep_gradients_ ? take::kKeep : 0), pairs);
  });
  compare([&] {
    const OptimizerState& state = known(optimizer);
    parity_->gradients_ready(state.number, named({state.entries.begin(), state.entries.end()}));
  });
}

const std::vector<Entry*>& Session::covered(OptimizerState& state) {
  if (state.covered_of == tensors_.entries().size()) return state.covered;
  state.covered_of = tensors_.entries().size();
  std::vector<Parameter*> elsewhere, all;
  for (const auto& other : optimizers_) {
    if (other.get() == &state) continue;
    elsewhere.insert(elsewhere.end(), other->entries.begin(), other->entries.end());
    if (other->optimizer == nullptr) continue;
    for (const auto& parameter : parameters_of(*other->optimizer)) {
      if (Entry* entry = tensors_.find(parameter)) elsewhere.push_back(entry);
    }
  }
  for (const auto& entry : tensors_.entries()) all.push_back(entry.get());
  recorder_.holds(state.number,
                  std::vector<Parameter*>(state.entries.begin(), state.entries.end()));
  state.covered.clear();
  for (const Parameter* parameter : recorder_.cover(state.number, elsewhere, all))
    state.covered.push_back(&tensors_.at(parameter->id));
  return state.covered;
}

// ---- a step ends

void Session::step_ends(torch::optim::Optimizer& optimizer) {
  passive("step_ends", [&] {
    if (!recorder_.passes.step_ends()) return;
    const auto now = steady_clock_now();
    const auto probe_ns = probe_ns_;
    OptimizerState& state = known(optimizer);
    enter(Phase::kRecording);
    StepRecord row;
    row.started_ns = started_ns_;
    row.optimizer = state.number;
    row.duration_ns = std::max<std::int64_t>(0, now - began_ns_ - probe_ns);
    recorder_.take_row(row);
    const bool examined = !covered(state).empty() && recorded() && !state.hooked_late;
    if (examined) look_after(state);
    const auto looked = steady_clock_now();
    recorder_.write_row(examined, probe_ns + (looked - now) + writing_ns_);
    recorder_.step_closed(state.number);
    for (const auto& entry : tensors_.entries()) entry->read = false;
    in_output_.reset();
    if (recorder_.schedule.number() == kFieldsStep) {
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

void Session::write_usages(int optimizer, const std::vector<Entry*>& covered) {
  const auto tensor_of = [](const Parameter& parameter) -> const at::Tensor& {
    return static_cast<const Entry&>(parameter).tensor;
  };
  const ParameterView view{
      .reach =
          [&](const Parameter& it) {
            Reach reach;
            if (in_output_) reach.in_output = in_output_->contains(it.id);
            if (operations_) reach.reached = it.read || reach.in_output.value_or(false);
            return reach;
          },
      .requires_grad = [&](const Parameter& it) { return tensor_of(it).requires_grad(); },
      .has_gradient = [&](const Parameter& it) { return has_gradient(tensor_of(it)); }};
  recorder_.set_usages_of(optimizer, std::vector<const Parameter*>(covered.begin(), covered.end()),
                          view);
}

void Session::look_after(OptimizerState& state) {
  const auto& entries = covered(state);
  write_usages(state.number, entries);
  TensorTable::Pairs pairs;
  for (Entry* entry : entries) {
    pairs.emplace_back(entry, entry->tensor);
    entry->was_seen(recorder_.schedule.number(), version_of(entry->tensor));
  }
  const int keep = recorder_.schedule.is_last() ? take::kKeepLast : take::kKeep;
  tensors_.observe(Stage::kWeight, kSeen | keep, pairs);
  observe_buffers();
  last_examined_ = recorder_.schedule.number();
  if (recorder_.schedule.is_wanted()) leave_values(entries);
}

void Session::observe_buffers() {
  // A script re-assigns them.
  for (std::size_t i = 0; i < wrappers_.size(); ++i) {
    if (wrappers_[i].module.tensors)
      tensors_.follow(wrappers_[i].module, static_cast<int>(i), recorder_.history.counts.backwards);
  }
  for (const auto& module : attached_)
    tensors_.follow(module, {}, recorder_.history.counts.backwards);
  TensorTable::Pairs pairs;
  for (const auto& entry : tensors_.entries()) {
    if (!entry->is_parameter) pairs.emplace_back(entry.get(), entry->tensor);
  }
  tensors_.observe(Stage::kBuffer, kSeen, pairs);
}

// The watcher saw that replicas differ, and requests the values of the affected parameters.
void Session::leave_values(const std::vector<Entry*>& covered) {
  std::ifstream in(settings_.folder / "values.json");
  const auto request = nlohmann::json::parse(in);
  if (request.at("step").get<std::int64_t>() != recorder_.schedule.number()) return;
  const auto names = request.at("parameters").get<std::set<std::string>>();
  auto room = request.at("elements").get<std::int64_t>();
  TensorTable::Pairs pairs;
  for (const Entry* entry : covered) {
    if (!names.contains(entry->info.name) || entry->numel > room) continue;
    room -= entry->numel;
    pairs.emplace_back(entry, entry->tensor);
  }
  tensors_.observe(Stage::kWeight, take::kKeepWanted, pairs);
}

// Examines the final weights, if the last step was not examined.
void Session::last_look() {
  const std::int64_t last = recorder_.schedule.number() - 1;
  if (last_examined_ >= last) return;
  TensorTable::Pairs pairs;
  for (const auto& entry : tensors_.entries()) {
    if (entry->is_parameter && entry->trainable) pairs.emplace_back(entry.get(), entry->tensor);
  }
  if (pairs.empty()) return;
  recorder_.forget();
  tensors_.observe(Stage::kWeight, kSeen | take::kKeepLast, pairs);
  observe_buffers();
  recorder_.write_row(true, -1);
  last_examined_ = last;
}

}  // namespace ddp_doctor
