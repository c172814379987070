// SPDX-License-Identifier: BSD-3-Clause
// What the Python probe notes about each process of a run that imports torch: process-PID.json in
// the run's folder. It tells which process is which rank, and what cannot be examined.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ddp_doctor {

struct ProcessNote {
  pid_t pid = 0;
  pid_t parent = 0;
  std::string torch;         // its version
  bool distributed = false;  // torch.distributed was initialized
  std::optional<int> rank;
  std::optional<int> world_size;
  std::int64_t steps = 0;         // optimizer steps seen
  std::vector<std::string> seen;  // "DataParallel", ...: what the probe cannot examine
};

// In the order of their pids. A note that cannot be read (one that is being written) is left out.
std::vector<ProcessNote> process_notes(const std::filesystem::path& folder);

}  // namespace ddp_doctor
