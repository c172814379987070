// SPDX-License-Identifier: BSD-3-Clause
// Explains a pasted error or log: which rule, which parameters, the possible causes, and what to
// run next. Handles the wording of any version, from the text alone: if PyTorch's words do not
// decide it, the certainty is kLikely.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/diagnose/finding.h"
#include "lib/explain/message_fields.h"

namespace ddp_doctor {

struct NextCommand {
  std::string command;
  std::string why;
};

struct Explanation {
  std::string text;                // id of a known text: "unfinished-reduction"
  std::vector<std::string> rules;  // most likely first; empty if no rule is about it
  Severity severity = Severity::kError;
  Certainty certainty = Certainty::kLikely;
  std::string torch;               // the versions with this wording; empty if all have it
  std::size_t line = 0;            // of the pasted text, where it first appears
  std::vector<RankFields> fields;  // the fields of each rank's message, by rank
  std::vector<int> suspects;       // ranks that others waited for, or that failed first
  std::string says;                // in one sentence
  std::vector<std::string> seen;   // what else this log shows
  std::vector<std::string> means;
  std::vector<std::string> causes;
  std::vector<NextCommand> next;

  std::vector<int> ranks() const;
};

struct ExplainedLog {
  std::size_t lines = 0;
  std::optional<std::string> program;     // from a traceback
  std::vector<Explanation> explanations;  // closest to the cause first
  std::string last_error;                 // the last line like "ValueError: ...", known or not
  bool last_error_in_library = false;     // of distributed training: by its name or its traceback
};

// Accepts any text, in time linear in its length. Each known text is explained once, however many
// ranks report it.
ExplainedLog explain_log(std::string_view text);

}  // namespace ddp_doctor
