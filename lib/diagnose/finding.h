// SPDX-License-Identifier: BSD-3-Clause
// A finding: a rule that applied to a run, with the evidence. A value; nothing here prints.
#pragma once

#include <ddp_doctor/change.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace ddp_doctor {

enum class Severity { kAdvice, kWarning, kError };
enum class Certainty { kLikely, kCertain };

const char* name_of(Severity severity);
const char* name_of(Certainty certainty);

struct FindingParameter {
  std::string name;          // in the wrapped module
  std::optional<int> index;  // as in PyTorch's errors
};

struct Prescription {
  std::string text;      // what to change, in the user's words
  std::string strategy;  // the strategy that can prove it; empty if there is none
  std::vector<std::string> alternatives =
      {};  // other strategies that work too; the cheapest is chosen
  std::vector<std::string> fallbacks = {};  // strategies to use if none of the above can be applied
};

// The result of another run of the same program under a prescribed strategy.
struct Proof {
  int run = 0;
  std::string strategy;
  bool cured = false;  // the finding is gone, and nothing worse appeared
  std::string text;
};

struct Where {
  std::string file;
  int line = 0;
  std::vector<std::string> via = {};  // "file:line" of libraries on the way there, outermost first

  bool operator==(const Where&) const = default;
};

struct Finding {
  std::string rule;  // "DDP101"
  std::string name;  // "wrapper-bypassed"
  Severity severity = Severity::kError;
  Certainty certainty = Certainty::kCertain;
  int run = 0;  // index of the run in the report
  std::vector<int> ranks;
  std::optional<std::int64_t> first_step;
  std::vector<FindingParameter> parameters;  // at fault; empty when all are
  std::string message;
  nlohmann::ordered_json evidence = nlohmann::ordered_json::object();
  std::optional<Where> where;
  Prescription prescription;
  std::optional<Proof> proof;
  std::optional<Change> change;
  std::vector<Finding> consequences;
};

// A rule that could not be decided, and why. Printed, never dropped.
struct NotChecked {
  std::string rule;
  std::string reason;
};

struct Diagnosis {
  std::vector<Finding> findings;  // root causes only, most severe first
  std::vector<NotChecked> not_checked;
  std::vector<std::string> checked;  // codes of the rules that were decided
  // Of those not checked, the ones that saw what would be an error if ranks were replicas.
  std::vector<std::string> undecided;
};

}  // namespace ddp_doctor
