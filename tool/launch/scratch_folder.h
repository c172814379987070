// SPDX-License-Identifier: BSD-3-Clause
// A temporary folder that does not outlive the tool for long: it is removed with the object, and
// what a killed ddp-doctor left is removed by the next one.
#pragma once

#include <filesystem>
#include <string>

namespace ddp_doctor {

class ScratchFolder {
 public:
  // `inside`/`name`-XXXXXX, and removes those of this user there that nobody holds. Throws
  // std::filesystem::filesystem_error.
  ScratchFolder(const std::filesystem::path& inside, const std::string& name);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int lock_ = -1;
};

// With what overlayfs makes there, which cannot be read. Warns if something stays.
void remove_folder(const std::filesystem::path& folder);

}  // namespace ddp_doctor
