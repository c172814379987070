// SPDX-License-Identifier: BSD-3-Clause
// Which modules explain "parameters that were not used"? Those that a run shows to be unused, and
// the smallest set that has to be frozen for the program to complete.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lib/report/value/unused_modules.h"

namespace ddp_doctor {

struct ModelTrial {
  std::vector<std::string> frozen;
  bool clean = false;  // nothing is unused, and the program completes
  std::string outcome;
};

struct ModelBisected {
  std::string program;
  std::string outcome;                               // of the program as it is
  bool unused = false;                               // it has the problem at all
  std::vector<std::string> observed;                 // one line for each group of modules
  std::vector<ModelTrial> trials;                    // in the order in which they were run
  std::optional<std::vector<std::string>> smallest;  // nothing: no set that was tried explains it
};

// Runs the program with these modules frozen; as it is, with none.
using RunFrozen = std::function<RunReport(const std::vector<std::string>& frozen)>;

// First freezes all modules in which something was seen to be unused, then removes one after the
// other; if nothing was seen (or that is not enough), module by module from the top down.
ModelBisected bisect_model(const RunFrozen& run);

void render_text(const ModelBisected& bisected, std::ostream& out);
void render_json(const ModelBisected& bisected, std::ostream& out);

}  // namespace ddp_doctor
