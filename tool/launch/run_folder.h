// SPDX-License-Identifier: BSD-3-Clause
// The folder that an examination writes to: the user's (--out), which is kept, or a temporary one,
// which is removed.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

namespace ddp_doctor {

class RunFolder {
 public:
  // Creates it with mode 0700. Throws Error if `out` cannot be written or is not empty.
  explicit RunFolder(const std::optional<std::filesystem::path>& out);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  bool temporary_;
};

// Those with a record in the folder of one run, in order.
std::vector<int> recorded_ranks(const std::filesystem::path& run_folder);

}  // namespace ddp_doctor
