// SPDX-License-Identifier: BSD-3-Clause
// Kinds of logged calls, and what rules say of them.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "lib/timeline/timeline.h"

namespace ddp_doctor {

// By rank; a rank that left none is not in.
using Logs = std::map<int, const std::vector<LoggedCall>*>;
Logs logs_of(const Timeline& timeline);

// The ranks of a group as LoggedCall has it.
std::vector<int> members_of(const Timeline& timeline, const std::string& group);

// Issued by the program itself.
bool by_hand(const LoggedCall& call);
// A forward of the wrapper without gradients; a forward with them, or a reduced backward.
bool evaluates(const LoggedCall& call);
bool trains(const LoggedCall& call);
// A hand-written collective for gradients: on one itself, or in a program that has no wrapper on
// something that may be a copy of some. A single number is a loss or a metric.
bool of_gradients(const Timeline& timeline, const LoggedCall& call);

// What has to be the same on all ranks.
using CallSignature = std::tuple<std::string, std::string, std::string, std::int64_t>;
CallSignature signature(const LoggedCall& call);

// "all_reduce of 40 x float32 at train.py:30", "the backward of wrapper 0 at train.py:31"
std::string name_of(const LoggedCall& call);

}  // namespace ddp_doctor
