// SPDX-License-Identifier: BSD-3-Clause
#include "lib/recorder/journal.h"

#include <chrono>
#include <filesystem>

namespace ddp_doctor {
namespace {

constexpr std::size_t kMaxWarnings = 100;

// Relative to the working directory if the file is below it.
std::string shown(const std::string& file) {
  std::error_code failure;
  const auto relative = std::filesystem::proximate(file, failure);
  return failure || relative.string().starts_with("..") ? file : relative.string();
}

}  // namespace

void Journal::enter(Phase phase) {
  phase_ = phase;
  writer_.enter(phase, schedule_.number());
}

void Journal::event(const std::string& kind, const std::string& text) {
  const std::chrono::nanoseconds now = std::chrono::system_clock::now().time_since_epoch();
  writer_.write_event({schedule_.number(), now.count(), kind, name_of(phase_), text});
}

void Journal::warn(const std::string& text) {
  if (warned_.size() < kMaxWarnings && warned_.insert(text).second) event("warning", text);
}

void Journal::fact(const std::string& subject, const std::string& key, const std::string& value) {
  auto& last = facts_[{subject, key}];
  if (last == value) return;
  last = value;
  writer_.write_fact({schedule_.number(), subject, key, value});
}

void Journal::site(const std::string& what, const std::string& file, int line) {
  if (!file.empty() && sites_.insert(what).second)
    writer_.write_site({what, schedule_.number(), shown(file), line, {}});
}

}  // namespace ddp_doctor
