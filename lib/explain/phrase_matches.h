// SPDX-License-Identifier: BSD-3-Clause
// Where the phrases of all known texts are in a log, and what the log is about.
#pragma once

#include <cstddef>
#include <set>
#include <string_view>
#include <vector>

#include "lib/explain/known_texts.h"
#include "lib/explain/pasted_log.h"

namespace ddp_doctor {

// A place where a phrase begins in a stream.
struct Match {
  const KnownText* text;
  const Phrase* phrase;
  std::size_t at;
};

struct Matches {
  std::vector<std::vector<Match>> of;  // each stream
  std::set<Context> contexts;          // of the log
};

Matches matches_in(const PastedLog& log);

// Whether a match is that text, by the words around it and by what the log is about.
bool counts(const Match& match, std::string_view text, const std::set<Context>& contexts);

}  // namespace ddp_doctor
