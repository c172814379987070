// SPDX-License-Identifier: BSD-3-Clause
// Parameters that a pasted error mentions by index or name, looked up in the user's program.
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "lib/explain/explanation.h"
#include "lib/report/value/report.h"

namespace ddp_doctor {

struct MentionedParameter {
  std::optional<int> index;             // as PyTorch's errors count
  std::string name;                     // from the log or the program
  std::optional<TensorInfo> parameter;  // empty: the program has no such parameter
  std::vector<int> unused_on;           // ranks of the program's run
  std::size_t unused_in = 0;            // steps of it
};

struct MentionedParameters {
  std::string program;
  int world_size = 1;
  std::size_t steps = 0;      // that were examined
  std::size_t trainable = 0;  // parameters of the wrapper
  std::vector<MentionedParameter> parameters;
};

// Each once, by index, then by name.
MentionedParameters mentioned_in(const ExplainedLog& log, const RunReport& run);

void render_text(const MentionedParameters& mentioned, std::ostream& out);
nlohmann::ordered_json as_json(const MentionedParameters& mentioned);

}  // namespace ddp_doctor
