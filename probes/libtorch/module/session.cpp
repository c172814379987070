// SPDX-License-Identifier: BSD-3-Clause
#include "probes/libtorch/module/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kMaxWarnings = 100;

// Relative to the working directory if the file is below it, as in the Python probe.
std::string shown(const char* file) {
  std::error_code failure;
  const fs::path relative = fs::proximate(file, failure);
  return failure || relative.string().starts_with("..") ? std::string(file) : relative.string();
}

}  // namespace

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
      [here = session.get()](const std::string& text) { here->warn(text); });
  return session;
}

Session::Session(const SessionSettings& settings)
    : settings_(settings),
      writer_(settings.folder, settings.header, settings.values_budget),
      tensors_(writer_),
      started_ns_(wall_clock_now()),
      began_ns_(steady_clock_now()) {
  enter(Phase::kBatch);
}

void Session::attach(const ModuleState& module, bool stays) {
  passive("attach", [&] {
    if (stays) attached_.push_back(module);
    tensors_.add_module(module, {}, history_.counts.backwards);
    tensors_.describe();
  });
}

void Session::enter(Phase phase) {
  phase_ = phase;
  writer_.enter(phase, number_);
}

void Session::next_step() {
  ++number_;
  wanted_ = writer_.wanted_step();
  const std::int64_t count = number_ - before_;
  // With several optimizers, one step of each.
  recording_ = count <= settings_.warmup || number_ == wanted_ || number_ == settings_.last ||
               count % settings_.every < std::max(1, optimizers_stepped_);
}

void Session::event(const std::string& kind, const std::string& text) {
  writer_.write_event({number_, wall_clock_now(), kind, name_of(phase_), text});
}

// Something is not examined. Each text is reported once.
void Session::warn(const std::string& text) {
  if (warned_.size() < kMaxWarnings && warned_.insert(text).second) event("warning", text);
}

void Session::failed(const char* where, const char* what) noexcept {
  try {
    warn(fmt::format("the probe failed in {}: {}", where, what));
  } catch (...) {
    closed_ = true;  // the record can no longer be written
  }
}

// Written if it is new or changed.
void Session::fact(const std::string& subject, const std::string& key, const std::string& json) {
  auto& last = facts_[{subject, key}];
  if (last == json) return;
  last = json;
  writer_.write_fact({number_, subject, key, json});
}

void Session::site(const std::string& what, const CodePlace& where) {
  if (*where.file != '\0' && sites_.insert(what).second)
    writer_.write_site({what, number_, shown(where.file), where.line, {}});
}

void Session::note_loss(double loss) {
  passive("loss", [&] { history_.loss(loss); });
}

void Session::raised(const std::string& text) {
  passive("raised", [&] {
    if (std::exchange(raised_, true)) return;
    event("error", text.substr(0, 16000));
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
    if (!raised_) event("end", "");
    closed_ = true;
    writer_.close();
  });
}

}  // namespace ddp_doctor
