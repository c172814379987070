// SPDX-License-Identifier: BSD-3-Clause
// What a folder held at one moment, so that a copy of it can be made to hold that again after a
// program changed the folder.
//
// Contents are kept where they cost little: as reflinks, or as copies of the files written last
// (what a training overwrites is what an earlier one wrote), up to a limit. Files that did not
// exist need no copy to be undone.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <vector>

#include "lib/error.h"

namespace ddp_doctor {

// Folders and files by their path relative to the folder. Links are not followed.
using Listing = std::map<std::filesystem::path, struct stat>;

// Omits `without` with what is below it. Sets `all` to false where there is too much to list.
Listing list_folder(const std::filesystem::path& folder, const std::filesystem::path& without = {},
                    bool* all = nullptr);

// Files that were written, made or removed between the two, without Python's caches.
std::vector<std::filesystem::path> changed_files(const Listing& before, const Listing& after);

// As a reflink where the file system can, otherwise as a copy, which takes its size from `room`
// (bytes). False, and no file, if it cannot be read or written, or there is too little room.
bool copy_file_to(const std::filesystem::path& from, const std::filesystem::path& to,
                  std::int64_t* room = nullptr);

// A file changed, and what it held was not kept.
class ContentLost : public Error {
  using Error::Error;
};

class FolderState {
 public:
  // Lists `folder`, which need not exist yet, without `without`, and keeps contents in `store`,
  // which is created.
  FolderState(std::filesystem::path folder, std::filesystem::path without,
              const std::filesystem::path& store);

  const std::filesystem::path& folder() const { return folder_; }
  const Listing& listing() const { return before_; }
  bool complete() const { return complete_; }

  // What turns the folder as it is now into what it was.
  struct Undo {
    std::filesystem::path path;         // relative
    bool existed = false;               // otherwise it is to be removed
    struct stat status = {};            // as it was
    std::filesystem::path content;      // of a file
    std::filesystem::path link_target;  // of a symbolic link
  };
  // Throws ContentLost, which names the file; Python's caches may be lost.
  std::vector<Undo> undo() const;

 private:
  void keep(const std::filesystem::path& store);

  std::filesystem::path folder_, without_;
  bool complete_ = true;
  Listing before_;
  std::map<std::filesystem::path, std::filesystem::path> kept_;   // contents
  std::map<std::filesystem::path, std::filesystem::path> links_;  // targets of symbolic links
};

}  // namespace ddp_doctor
