// SPDX-License-Identifier: BSD-3-Clause
// What a pasted error or log says, explained: which rule, which parameters, what may have caused it
// and what to run next. For any version's wording, and with nothing but the text: where PyTorch's
// words do not decide it, the certainty is kLikely.
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
  std::vector<std::string> rules;  // the likeliest first; none if no rule is about it
  Severity severity = Severity::kError;
  Certainty certainty = Certainty::kLikely;
  std::string torch;               // the versions that word it so; empty if all do
  std::size_t line = 0;            // of what was pasted, where it stands first
  std::vector<RankFields> fields;  // what each rank's message says, by rank
  std::vector<int> suspects;       // ranks that others waited for, or that fell first
  std::string says;                // in one sentence
  std::vector<std::string> seen;   // what this log shows beyond that
  std::vector<std::string> means;
  std::vector<std::string> causes;
  std::vector<NextCommand> next;

  std::vector<int> ranks() const;
};

struct ExplainedLog {
  std::size_t lines = 0;
  std::optional<std::string> program;     // from a traceback
  std::vector<Explanation> explanations;  // nearest to the cause first
  std::string last_error;                 // the last line like "ValueError: ...", known or not
};

// Takes anything, and time in proportion to its length. Each known text is explained once, whatever
// the number of ranks that report it.
ExplainedLog explain_log(std::string_view text);

}  // namespace ddp_doctor
