// SPDX-License-Identifier: BSD-3-Clause
#include "probes/libtorch/module/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace ddp_doctor {

std::int64_t wall_clock_now() {
  return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::int64_t steady_clock_now() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::shared_ptr<Session> Session::make(const SessionSettings& settings) {
  auto session = std::make_shared<Session>(settings);
  // The hooks live as long as the parameters, and so perhaps longer than the session.
  session->tensors_.on_gradient([weak = std::weak_ptr(session)](int id) {
    if (const auto here = weak.lock()) here->gradient_arrived(id);
  });
  session->tensors_.on_trouble(
      [here = session.get()](const std::string& text) { here->journal_.warn(text); });
  return session;
}

Session::Session(const SessionSettings& settings)
    : settings_(settings),
      recorder_(settings.folder, settings.header, settings.values_budget, settings.schedule),
      started_ns_(wall_clock_now()),
      began_ns_(steady_clock_now()),
      parity_(Parity::from_environment(
          settings.header.rank, settings.header.world_size,
          settings.header.probe == "script"
              ? "its training_step() makes the samples itself: export batch(), forward() and "
                "loss() "
                "in its place"
              : "the program does not say what its batches are: call examination.batch({...}) "
                "before each forward, and use what it returns")) {
  enter(Phase::kBatch);
}

void Session::attach(const ModuleState& module, bool stays) {
  passive("attach", [&] {
    if (stays) attached_.push_back(module);
    tensors_.add_module(module, {}, recorder_.history.counts.backwards);
    tensors_.describe();
  });
}

void Session::failed(const char* where, const char* what) noexcept {
  try {
    journal_.warn(fmt::format("the probe failed in {}: {}", where, what));
  } catch (...) {
    closed_ = true;  // the record can no longer be written
  }
}

void Session::note_loss(double loss) {
  passive("loss", [&] { recorder_.history.loss(loss); });
  compare([&] { parity_->loss(loss); });
}

// Without the module's name where that is clear without it.
std::vector<NamedTensor> Session::named(const std::vector<const Entry*>& entries) const {
  const auto short_name = [](const Entry& entry) {
    return entry.info.name.substr(entry.info.name.find(':') + 1);
  };
  std::map<std::string, int> count;
  for (const auto& entry : tensors_.entries()) ++count[short_name(*entry)];
  std::vector<NamedTensor> tensors;
  for (const Entry* entry : entries) {
    const std::string name = short_name(*entry);
    tensors.push_back(
        {count[name] > 1 ? entry->info.name : name, entry->tensor, !entry->is_parameter});
  }
  return tensors;
}

Samples Session::batch(Samples given) {
  compare([&] {
    for (const auto& wrapper : wrappers_) {
      if (wrapper.reducer != nullptr) wrapper.module.without_dropout();
    }
    for (const auto& module : attached_) module.without_dropout();
    std::vector<const Entry*> all;
    for (const auto& entry : tensors_.entries()) all.push_back(entry.get());
    given = parity_->batch(given, named(all));
  });
  return given;
}

void Session::raised(const std::string& text) {
  passive("raised", [&] {
    if (std::exchange(raised_, true)) return;
    journal_.event("error", text.substr(0, 16000));
  });
}

void Session::raising(const std::string& text) {
  passive("raising", [&] { last_error_ = text; });
}

void Session::finish(bool raised) {
  if (raised) {
    this->raised(!last_error_.empty() ? last_error_
                                      : "the program raised an exception; see its output");
  }
  passive("finish", [&] {
    last_look();
    for (std::size_t i = 0; i < wrappers_.size(); ++i) write_fields(static_cast<int>(i), "runtime");
  });
  passive("finish", [&] {
    enter(Phase::kFinished);
    if (!raised_) journal_.event("end", "");
    closed_ = true;
    recorder_.close();
  });
}

}  // namespace ddp_doctor
