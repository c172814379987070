// SPDX-License-Identifier: BSD-3-Clause
// Processes of a run that load torch while the probe is not in them, and why: told by what /proc
// shows of them and their parents while they run.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tool/launch/launch.h"

namespace ddp_doctor {

struct TorchProcess {
  pid_t pid = 0;
  std::vector<std::string> words;   // its command line
  bool python = false;              // it has an interpreter; otherwise a C++ program
  Environment environment;          // that it was started with
  std::vector<std::string> parent;  // command line of the nearest process above with the probe's
                                    // environment, below ddp-doctor; empty: there is none
};

// As a sentence; nothing where the probe gets in, or it is not known why it does not. `probe` is
// the folder that belongs on PYTHONPATH.
std::optional<std::string> why_unprobed(const TorchProcess& process,
                                        const std::filesystem::path& probe);

class TorchProcesses {
 public:
  // Looks at this process' descendants; to be called often. Stops once a rank has its record in
  // `folder`, the run's.
  void look(const std::filesystem::path& folder);

  // Why the probe is not in the Python processes that left no note in `folder`, each reason once.
  std::set<std::string> reasons(const std::filesystem::path& folder) const;
  bool any_without_python() const;

 private:
  std::map<pid_t, TorchProcess> found_;
  std::chrono::steady_clock::time_point began_, looked_at_;
  bool recorded_ = false;
};

}  // namespace ddp_doctor
