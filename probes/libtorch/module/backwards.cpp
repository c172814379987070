// SPDX-License-Identifier: BSD-3-Clause
// Backward passes, the gradients that arrive in them, and collectives that the program issues
// itself.
//
// A backward is seen from its first gradient on; its end is a callback of the autograd engine,
// asked for late enough to come after the reducer's own.

#include <torch/csrc/autograd/engine.h>

#include <algorithm>

#include "probes/libtorch/module/session.h"
#include "probes/libtorch/module/tensor_view.h"

namespace ddp_doctor {
namespace {

// The reducer's last callback is queued by its last hook, or by the callback of a static graph's
// delayed reduction. A callback queued by a callback of a callback runs after it.
constexpr int kHops = 2;

}  // namespace

void Session::gradient_arrived(int id) noexcept {
  passive("gradient_arrived", [&] {
    Entry& entry = tensors_.at(id);
    if (!recorder_.passes.in_backward()) backward_begins(id);
    if (recorder_.gradient_arrives(entry, true)) examine_local(entry);
  });
}

void Session::examine_local(Entry& entry) {
  tensors_.observe(Stage::kLocalGradient, recorder_.what_of_gradients(),
                   {{&entry, entry.tensor.grad()}});
}

void Session::backward_begins(int first) {
  enter(Phase::kBackward);
  call_at_the_end(kHops);
  tensors_.hook_trainable();
  // Shows whether the program changed the gradients of an earlier micro-batch. The first gradient
  // has already arrived.
  if (recorded()) {
    look_at_gradients(
        Stage::kBeforeBackward, take::kSample,
        [&](const Entry& entry) {
          return entry.id != first && recorder_.passes.is_accumulating(entry);
        },
        false);
  }
  // In step 1 of small models: enough to show that the synchronized gradients are the mean.
  keep_gradients_ = recorder_.schedule.number() == 1 &&
                    3 * 4 * tensors_.parameter_elements() <= settings_.values_budget / 4;
  recorder_.backward_begins("", 0, kSeen | (keep_gradients_ ? take::kKeep : 0));
}

void Session::call_at_the_end(int hops) {
  torch::autograd::Engine::get_default_engine().queue_callback([weak = weak_from_this(), hops] {
    const auto here = weak.lock();
    if (here == nullptr) return;
    here->passive("backward_ends", [&] {
      if (hops > 0) {
        here->call_at_the_end(hops - 1);
      } else {
        here->backward_ends();
      }
    });
  });
}

void Session::backward_ends() {
  if (!recorder_.passes.in_backward()) return;
  recorder_.backward_ends({});
  const auto& ended = recorder_.last_backward();
  for (const int wrapper : ended.partial)
    journal_.fact("wrapper " + std::to_string(wrapper), "partial", "true");
  if (recorded()) {
    const auto is_synchronized = [&](const Entry& entry) {
      return entry.is_reduced() && std::find(ended.synchronized.begin(), ended.synchronized.end(),
                                             entry.in_wrapper) != ended.synchronized.end();
    };
    look_at_gradients(Stage::kReducedGradient, kSeen, is_synchronized, true);
    look_at_gradients(
        Stage::kAccumulated, take::kSample,
        [&](const Entry& entry) { return recorder_.passes.is_accumulating(entry); }, false);
    // Nothing reduces these during a backward. A few values are enough to see whether they change
    // before they are reduced.
    if (ended.unwrapped) {
      look_at_gradients(
          Stage::kLocalGradient, take::kSample,
          [&](const Entry& entry) {
            return !entry.is_reduced() && !recorder_.passes.is_examined(entry);
          },
          false);
    }
  }
  enter(Phase::kBatch);
}

std::int64_t Session::collective_begins(const std::string& op, const std::string& reduce,
                                        const std::vector<at::Tensor>& tensors,
                                        const std::vector<int>& ranks) {
  std::int64_t number = 0;
  passive("collective_begins", [&] {
    Collective call;
    call.op = op;
    call.reduce = reduce;
    call.dtype = tensors.empty() ? "" : dtype_name(tensors.front().scalar_type());
    call.group = ranks_text(ranks);
    call.moment = recorder_.passes.moment();
    phase_before_collective_ = journal_.phase();
    enter(Phase::kCollective);
    std::int64_t bytes = 0;
    for (const auto& tensor : tensors) {
      call.numel += tensor.numel();
      bytes += tensor.numel() * static_cast<std::int64_t>(tensor.element_size());
    }
    std::pair<Entry*, bool> target;
    // Buffers may be synchronized once per epoch.
    if (recorded() || (call.moment == "outside" && call.numel > 1)) target = target_of(tensors);
    auto& [entry, is_gradient] = target;
    if (entry != nullptr)
      call.target = (is_gradient ? "gradient of " : "weight of ") + entry->info.name;
    if (recorded() && is_gradient && recorder_.passes.is_still_local(*entry)) examine_local(*entry);
    if (recorded() && recorder_.passes.first_before_step()) {
      look_at_gradients(
          Stage::kCollectiveGradient, kSeen, [](const Entry&) { return true; }, false);
    }
    const std::string group = call.group;
    const bool paired = op != "send" && op != "recv";
    number = recorder_.collective(std::move(call), group, paired, bytes);
  });
  return number;
}

void Session::collective_resumes(std::int64_t number) {
  passive("collective_resumes", [&] {
    recorder_.call_resumes(number);
    phase_before_collective_ = journal_.phase();
    enter(Phase::kCollective);
  });
}

void Session::collective_ends(std::int64_t number) {
  passive("collective_ends", [&] {
    recorder_.call_ends(number);
    enter(phase_before_collective_);
  });
}

std::pair<Entry*, bool> Session::target_of(const std::vector<at::Tensor>& tensors) {
  if (tensors.empty() || tensors.front().layout() != at::kStrided) return {};
  const void* data = tensors.front().data_ptr();
  if (data == nullptr) return {};
  for (const auto& entry : tensors_.entries()) {
    const at::Tensor gradient = entry->tensor.is_leaf() ? entry->tensor.grad() : at::Tensor();
    if (gradient.defined() && gradient.layout() == at::kStrided && gradient.data_ptr() == data)
      return {entry.get(), true};
    if (entry->tensor.layout() == at::kStrided && entry->tensor.data_ptr() == data)
      return {entry.get(), false};
  }
  return {};
}

}  // namespace ddp_doctor
