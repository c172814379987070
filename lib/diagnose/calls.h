// SPDX-License-Identifier: BSD-3-Clause
// Kinds of logged calls, and their names in messages.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "lib/timeline/timeline.h"

namespace ddp_doctor {

// By rank; without ranks that have no log.
using Logs = std::map<int, const std::vector<LoggedCall>*>;
Logs logs_of(const Timeline& timeline);

// The ranks of a group, given as in LoggedCall.
std::vector<int> members_of(const Timeline& timeline, const std::string& group);

// Issued by the program itself.
bool by_hand(const LoggedCall& call);
// A forward of the wrapper without gradients; a forward with them, or a reduced backward.
bool evaluates(const LoggedCall& call);
bool trains(const LoggedCall& call);
// A hand-written collective for gradients: its tensor is a gradient, or, in a program without a
// wrapper, may be a copy of gradients. A single number is a loss or a metric.
bool of_gradients(const Timeline& timeline, const LoggedCall& call);

// What must be the same on all ranks.
using CallSignature = std::tuple<std::string, std::string, std::string, std::int64_t>;
CallSignature signature(const LoggedCall& call);

// "all_reduce of 40 x float32 at train.py:30", "the backward of wrapper 0 at train.py:31"
std::string name_of(const LoggedCall& call);

}  // namespace ddp_doctor
