// SPDX-License-Identifier: BSD-3-Clause
// The messages of PyTorch that can be explained: their wording by version, and what they mean. Data
// only; explanation.cpp finds them in a log.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "lib/diagnose/rule.h"
#include "lib/explain/message_fields.h"

namespace ddp_doctor {

struct Explanation;

// The order in a report: closer to the cause comes first.
enum class Depth { kCause, kCollective, kConsequence, kWarning };

struct Phrase {
  std::string_view words;
  // Other programs print this too: it counts only near words of torch.distributed.
  bool needs_torch_words = false;
};

// Words that only some versions use, or that reveal more about the case.
struct Hint {
  std::string_view words;
  std::string_view means;
};

struct KnownText {
  std::string_view id;  // public: part of the JSON output
  Severity severity;
  Certainty certainty;  // kCertain: the text alone decides the rule
  Depth depth;
  std::vector<const Rule*> rules;    // most likely first; empty if it has no rule
  std::vector<Phrase> phrases;       // any of them
  std::string_view not_before = "";  // ignored if these words follow within the same message
  std::string_view not_after = "";   // ignored if these words come before it
  std::vector<std::string_view> part_of = {};  // omitted if one of these was found
  std::vector<Hint> versions = {};             // of torch; the first whose words are found
  std::vector<Hint> hints = {};
  std::string_view says;
  std::vector<std::string_view> means = {};
  std::vector<std::string_view> causes = {};
  std::string_view run;  // what `ddp-doctor run` adds
  Reader read = read_nothing;
  void (*weigh)(Explanation& explanation) =
      nullptr;  // interprets the fields of several ranks together
};

// In no particular order.
using KnownTexts = std::span<const KnownText* const>;
KnownTexts reducer_texts();      // errors in a forward or a backward
KnownTexts collective_texts();   // errors in collectives
KnownTexts constructor_texts();  // errors before any training
KnownTexts warning_texts();      // warnings; training continues

// A rank's own error, not one of PyTorch's: the reason why others lost it or waited for it.
const KnownText& own_error_text();

// Interpret the fields of several ranks together (weighing.cpp).
void weigh_unused(Explanation& explanation);
void weigh_counts(Explanation& explanation);
void weigh_fingerprints(Explanation& explanation);
void weigh_timeouts(Explanation& explanation);
void weigh_suspects(Explanation& explanation);

}  // namespace ddp_doctor
