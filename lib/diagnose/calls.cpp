// SPDX-License-Identifier: BSD-3-Clause
#include "lib/diagnose/calls.h"

#include <fmt/format.h>

#include <numeric>

#include "lib/diagnose/facts.h"

namespace ddp_doctor {
namespace {

bool is_floating(const std::string& dtype) {
  return dtype.starts_with("float") || dtype.starts_with("bfloat");
}

// Collectives whose sizes may differ between ranks.
bool of_any_size(const LoggedCall& call) {
  return call.op.starts_with("all_to_all") || call.op.find("object") != std::string::npos ||
         call.op.find("gather") != std::string::npos ||
         call.op.find("scatter") != std::string::npos;
}

}  // namespace

Logs logs_of(const Timeline& timeline) {
  Logs logs;
  for (int rank : timeline.ranks()) {
    const auto* record = timeline.record(rank);
    if (record != nullptr && !record->calls.empty()) logs[rank] = &record->calls;
  }
  return logs;
}

std::vector<int> members_of(const Timeline& timeline, const std::string& group) {
  std::vector<int> members;
  if (group.empty()) {  // on any machine
    members.resize(static_cast<std::size_t>(timeline.run.world_size));
    std::iota(members.begin(), members.end(), 0);
    return members;
  }
  return ranks_in(group);
}

bool by_hand(const LoggedCall& call) {
  return !call.op.starts_with("ddp.") && !call.op.starts_with("data.");
}

bool evaluates(const LoggedCall& call) {
  return call.op == "ddp.forward" && call.reduce == "no_grad";
}

bool trains(const LoggedCall& call) {
  return call.op == "ddp.backward" || (call.op == "ddp.forward" && !evaluates(call));
}

bool of_gradients(const Timeline& timeline, const LoggedCall& call) {
  if (!by_hand(call) || call.moment != "before-step") return false;
  if (call.target.starts_with("gradient")) return true;
  return !timeline.has_wrapper() && is_floating(call.dtype) && call.numel > 1;
}

CallSignature signature(const LoggedCall& call) {
  const bool sized = by_hand(call) && !of_any_size(call);
  return {call.op, by_hand(call) ? call.reduce : call.target, sized ? call.dtype : std::string(),
          sized ? call.numel : 0};
}

std::string name_of(const LoggedCall& call) {
  const std::string place = call.file.empty() ? "" : fmt::format(" at {}:{}", call.file, call.line);
  if (evaluates(call))
    return fmt::format("a forward of {} without gradients{}", call.target, place);
  if (call.op == "data.begin") return "the start of a pass over the data" + place;
  if (call.op == "data.end") return "the end of a pass over the data" + place;
  if (call.op.starts_with("ddp."))
    return fmt::format("the {} of {}{}", call.op.substr(4), call.target, place);
  std::string what = call.op;
  if (call.numel > 0) what += fmt::format(" of {} x {}", call.numel, call.dtype);
  if (!call.target.empty()) what += fmt::format(" ({})", call.target);
  return what + place;
}

}  // namespace ddp_doctor
