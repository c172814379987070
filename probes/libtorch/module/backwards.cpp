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
    if (!in_backward_) backward_begins(id);
    fresh_ = true;
    ++entry.arrivals;
    entry.last_backward = history_.counts.backwards;
    if (!entry.info.ddp_index) unwrapped_arrives(entry);
    if (!entry.info.wrapper) return;
    Wrapper& made = wrappers_[static_cast<std::size_t>(*entry.info.wrapper)];
    ++made.arrived;
    made.reduced += entry.info.ddp_index ? 1 : 0;
    if (made.armed && made.arrived == 1) {
      LoggedCall call;
      call.step = number_;
      call.op = "ddp.backward";
      call.group = made.group;
      call.target = "wrapper " + std::to_string(*entry.info.wrapper);
      made.backward = writer_.call_begins(call, made.group_known);
    }
    if (made.armed && entry.info.ddp_index && recorded()) {
      tensors_.observe(Stage::kLocalGradient, kSeen | (keep_gradients_ ? take::kKeep : 0),
                       {{&entry, entry.tensor.grad()}});
    }
  });
}

// Nothing in torch reduces it, but a hook of the program may do so as soon as it is there, or have
// done so before it was added up.
void Session::unwrapped_arrives(Entry& entry) {
  unwrapped_arrived_ = true;
  const bool hooked_before = reduced_numels_.contains(entry.info.numel);
  reduced_numels_.clear();
  early_.erase(&entry);
  if ((number_ == 1 || reduces_in_backward_) && !hooked_before) examine_early(entry);
}

void Session::examine_early(Entry& entry) {
  if (!recorded() || !entry.tensor.grad().defined() || !early_.insert(&entry).second) return;
  tensors_.observe(Stage::kLocalGradient, kSeen | (keep_gradients_ ? take::kKeep : 0),
                   {{&entry, entry.tensor.grad()}});
}

void Session::backward_begins(int first) {
  in_backward_ = true;
  step_depth_ = 0;
  enter(Phase::kBackward);
  call_at_the_end(kHops);
  tensors_.hook_trainable();
  // Shows whether the program changed the gradients of an earlier micro-batch. The first gradient
  // has already arrived.
  look_at_gradients(
      Stage::kBeforeBackward, take::kSample,
      [&](const Entry& entry) {
        return entry.id() != first &&
               std::find(accumulating_.begin(), accumulating_.end(), &entry) != accumulating_.end();
      },
      false);
  accumulating_.clear();
  history_.backward();
  unwrapped_arrived_ = false;
  reduced_numels_.clear();
  early_.clear();
  for (Wrapper& made : wrappers_) {
    made.arrived = made.reduced = 0;
    made.inside = false;  // a forward that raised, and the program went on
  }
  // In step 1 of small models: enough to show that the synchronized gradients are the mean.
  keep_gradients_ =
      number_ == 1 && 3 * 4 * tensors_.parameter_elements() <= settings_.values_budget / 4;
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
  if (!in_backward_) return;
  in_backward_ = false;
  std::string of;
  std::vector<int> synchronized, touched;
  for (std::size_t i = 0; i < wrappers_.size(); ++i) {
    Wrapper& made = wrappers_[i];
    if (made.arrived == 0) continue;
    const std::string name = std::to_string(i);
    if (made.read && !made.through) {
      ++history_.counts.around;
      history_.token("N" + name);
      made.seen = true;
    }
    made.read = made.through = false;
    touched.push_back(static_cast<int>(i));
    if (made.armed) synchronized.push_back(static_cast<int>(i));
    if (made.armed && made.reduced < made.indexed) fact("wrapper " + name, "partial", "true");
    of += (of.empty() ? "" : ",") + name + (!made.seen ? "?" : made.armed ? "+" : "-");
  }
  history_.counts.unsynchronized += !touched.empty() && synchronized.empty() ? 1 : 0;
  history_.counts.reduced += static_cast<int>(synchronized.size());
  history_.token("B" + of + (unwrapped_arrived_ ? "u" : ""));
  const auto among = [](const std::vector<int>& wrappers) {
    return [&wrappers](const Entry& entry) {
      return entry.info.wrapper &&
             std::find(wrappers.begin(), wrappers.end(), *entry.info.wrapper) != wrappers.end();
    };
  };
  if (recorded()) {
    look_at_gradients(
        Stage::kReducedGradient, kSeen,
        [&](const Entry& entry) { return entry.info.ddp_index && among(synchronized)(entry); },
        true);
    for (const auto& entry : tensors_.entries()) {
      if (synchronized.empty() && entry->is_parameter() && among(touched)(*entry))
        accumulating_.push_back(entry.get());
    }
    look_at_gradients(
        Stage::kAccumulated, take::kSample,
        [&](const Entry& entry) { return synchronized.empty() && among(touched)(entry); }, false);
    // Nothing reduces these during a backward. A few values are enough to see whether they change
    // before they are reduced.
    if (unwrapped_arrived_) {
      look_at_gradients(
          Stage::kLocalGradient, take::kSample,
          [&](const Entry& entry) { return !entry.info.ddp_index && !early_.contains(&entry); },
          false);
    }
  }
  for (const int wrapper : synchronized) {
    Wrapper& made = wrappers_[static_cast<std::size_t>(wrapper)];
    made.armed = false;
    made.spent = true;
    writer_.call_ends(made.backward);
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
    const bool inside = std::any_of(wrappers_.begin(), wrappers_.end(),
                                    [](const Wrapper& made) { return made.inside; });
    call.moment = in_backward_ ? "backward"
                  : updating_  ? "optimizer"
                  : inside     ? "forward"
                  : fresh_     ? "before-step"
                               : "outside";
    phase_before_collective_ = phase_;
    enter(Phase::kCollective);
    ++history_.counts.collectives;
    for (const auto& tensor : tensors) {
      call.numel += tensor.numel();
      history_.counts.bytes += tensor.numel() * static_cast<std::int64_t>(tensor.element_size());
    }
    Target target;
    // Buffers may be synchronized once per epoch.
    if (recorded() || (call.moment == "outside" && call.numel > 1)) target = target_of(tensors);
    call.target = target.text();
    if (in_backward_) {
      reduces_in_backward_ = true;
      reduced_numels_.insert(call.numel);
      // Still the local one.
      if (target.is_gradient && !target.entry->info.ddp_index) examine_early(*target.entry);
    }
    if (recorded() && call.moment == "before-step" && !std::exchange(gradients_seen_, true)) {
      look_at_gradients(
          Stage::kCollectiveGradient, kSeen, [](const Entry&) { return true; }, false);
    }
    history_.token(target.entry == nullptr ? "C" : target.is_gradient ? "Cg" : "Cw");
    LoggedCall logged;
    logged.step = number_;
    logged.numel = call.numel;
    logged.op = call.op;
    logged.reduce = call.reduce;
    logged.dtype = call.dtype;
    logged.group = call.group;
    logged.moment = call.moment;
    logged.target = call.target;
    number = writer_.call_begins(logged, op != "send" && op != "recv");
    history_.call(std::move(call));
  });
  return number;
}

void Session::collective_resumes(std::int64_t number) {
  passive("collective_resumes", [&] {
    writer_.call_resumes(number);
    phase_before_collective_ = phase_;
    enter(Phase::kCollective);
  });
}

void Session::collective_ends(std::int64_t number) {
  passive("collective_ends", [&] {
    writer_.call_ends(number);
    enter(phase_before_collective_);
  });
}

std::string Session::Target::text() const {
  if (entry == nullptr) return "";
  return (is_gradient ? "gradient of " : "weight of ") + entry->info.name;
}

// The gradient or weight that is reduced; none for a copy or anything else.
Session::Target Session::target_of(const std::vector<at::Tensor>& tensors) {
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
