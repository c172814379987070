// SPDX-License-Identifier: BSD-3-Clause
// The texts of PyTorch that can be explained: how each is worded in which version, and what it
// means. Data; explanation.cpp finds them in a log.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "lib/diagnose/finding.h"
#include "lib/explain/message_fields.h"

namespace ddp_doctor {

struct Explanation;

// What comes first in a report: the nearer to the cause, the earlier.
enum class Depth { kCause, kCollective, kConsequence, kWarning };

struct Phrase {
  std::string_view words;
  // Other programs say this too: it counts only near a word of torch.distributed's own.
  bool needs_company = false;
};

// Words that are in some versions' wording only, or that tell something about the case.
struct Clue {
  std::string_view words;
  std::string_view means;
};

struct KnownText {
  std::string_view id;  // public: it stands in the JSON output
  Severity severity;
  Certainty certainty;  // kCertain: the text alone decides for the rule
  Depth depth;
  std::vector<std::string_view> rules;  // the likeliest first; none if it has no rule
  std::vector<Phrase> phrases;          // any of them
  std::string_view not_before = "";     // not where these words follow within the same message
  std::string_view not_after = "";      // not where these words stand before it
  std::vector<std::string_view> part_of = {};  // left out where one of these was found
  std::vector<Clue> versions = {};             // of torch; the first whose words are there
  std::vector<Clue> clues = {};
  std::string_view says;
  std::vector<std::string_view> means = {};
  std::vector<std::string_view> causes = {};
  std::string_view run;  // what `ddp-doctor run` adds
  Reader read = read_nothing;
  void (*weigh)(Explanation& explanation) = nullptr;  // what several ranks' figures say together
};

// In no particular order.
using KnownTexts = std::span<const KnownText* const>;
KnownTexts reducer_texts();      // of a forward and a backward
KnownTexts collective_texts();   // where ranks do not meet
KnownTexts constructor_texts();  // before any training
KnownTexts warning_texts();      // training goes on

// A rank's own error, not PyTorch's: the reason why others lost it or waited for it.
const KnownText& own_error_text();

// What the figures of several ranks say together (weighing.cpp).
void weigh_unused(Explanation& explanation);
void weigh_counts(Explanation& explanation);
void weigh_fingerprints(Explanation& explanation);
void weigh_timeouts(Explanation& explanation);
void weigh_suspects(Explanation& explanation);

}  // namespace ddp_doctor
