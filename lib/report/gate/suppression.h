// SPDX-License-Identifier: BSD-3-Clause
// Findings that are expected in this program, and why.
#pragma once

#include <string>
#include <vector>

#include "lib/report/render/place.h"

namespace ddp_doctor {

// "DDP201:backbone.unused_head.*:* kept for old checkpoints": a rule's code or name, a pattern of
// parameters' names, a pattern of places ("src/train.py", "train.py:57"), and after a space the
// reason. Patterns are those of the shell (fnmatch), and match as a whole.
class Suppression {
 public:
  // Throws Error if the text is not a suppression; a reason is required.
  explicit Suppression(const std::string& text);

  const std::string& text() const { return text_; }
  const std::string& reason() const { return reason_; }
  const std::string& rule() const { return rule_; }

  // Whether it covers this parameter of the finding; "" stands for every parameter, which only the
  // pattern "*" matches.
  bool covers(const Finding& finding, const SourcePlace& place, const std::string& parameter) const;

 private:
  std::string text_, rule_, parameters_, places_, reason_;
};

// Moves to report.suppressed every finding, consequences too, whose parameters are all covered. Its
// consequences become root causes: a suppression never hides another rule.
void suppress(Report& report, const std::vector<Suppression>& suppressions,
              const RenderOptions& options);

// Suppressions of a finding, without a reason: one for each parameter.
std::vector<std::string> suppressions_of(const Finding& finding, const RunReport& run,
                                         const RenderOptions& options);

}  // namespace ddp_doctor
