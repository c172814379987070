// SPDX-License-Identifier: BSD-3-Clause
// What a bisection over commits found: a value, and its renderers.
#pragma once

#include <cstddef>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "lib/report/value/report.h"

namespace ddp_doctor {

struct JudgedCommit {
  std::string commit;  // full hash
  std::string title;
  enum class Outcome { kGood, kBad, kSkipped } outcome = Outcome::kSkipped;
  std::string reason;             // why it could not be judged
  std::vector<Finding> findings;  // those that decide
};
const char* name_of(JudgedCommit::Outcome outcome);

struct Bisected {
  std::size_t commits = 0;             // from good to bad, both included
  std::vector<JudgedCommit> examined;  // in the order in which they were
  std::string first_bad;               // full hash
  std::string description;             // of it: hash, author, date, title, files
  std::string parent;                  // the commit before it
  // Commits that could not be judged and may be the first bad one; `first_bad` is then only the
  // first that is known to be bad.
  std::vector<std::string> suspects;

  const JudgedCommit* find(const std::string& commit) const;
  // Findings that only the first bad commit has, and those that only its parent has. By rule and
  // parameters.
  std::vector<Finding> came() const;
  std::vector<Finding> went() const;
};

// "bad: DDP101 wrapper-bypassed at train.py:57"
std::string describe(const JudgedCommit& commit);

void render_text(const Bisected& bisected, std::ostream& out);
void render_json(const Bisected& bisected, std::ostream& out);

}  // namespace ddp_doctor
