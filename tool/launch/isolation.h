// SPDX-License-Identifier: BSD-3-Clause
// Runs that nobody asked for (trials of a fix, timing, comparison) must not write into the user's
// folders, and must not find there what an earlier run wrote. Each gets a view of its own: the
// folders as they were before the first run, copy-on-write.
//
// A view is an overlay over each folder, in a mount namespace that the program's processes join
// (Linux 5.11, or root), so that absolute paths lead to it too. Where that is not allowed, it is a
// copy of the folders, by reflinks or up to a limit of size; then absolute paths that the program
// itself contains still lead to the original, which is checked after each run. Hard links would
// not do: a program that writes in place would reach the originals.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tool/launch/folder_state.h"
#include "tool/watch/program_options.h"

namespace ddp_doctor {

// New contents of a file, for one view.
struct Replaced {
  std::filesystem::path file;
  std::string content;
};

class ScratchFolder;

class View {
 public:
  virtual ~View() = default;
  // For a process between fork and exec: makes it see the view, and be in its folder.
  // Async-signal-safe. False if it could not.
  virtual bool enter() const = 0;
  // What this word of a command line, or element of a search path, is there.
  virtual std::string inside(const std::string& word) const { return word; }
  // Files that were written, created or removed in the view since it was made. By their paths in
  // the user's folders.
  virtual std::vector<std::filesystem::path> written() const = 0;
};

class Isolation {
 public:
  enum class Kind { kOverlay, kCopy };

  // Before the first run. `records` stay reachable. `only`: for tests. Throws Error with the
  // reasons where no kind of view is possible.
  Isolation(const std::vector<ProgramOptions>& programs, const std::filesystem::path& records,
            std::optional<Kind> only = {});
  ~Isolation();
  Isolation(const Isolation&) = delete;
  Isolation& operator=(const Isolation&) = delete;

  Kind kind() const { return kind_; }
  std::vector<std::filesystem::path> folders() const;  // that it covers
  bool covers(const std::filesystem::path& file) const;
  // "a copy-on-write view of /home/me/project"
  std::string describe() const;

  // The folders as they were before the first run, with these files replaced. Throws Error if that
  // cannot be had.
  std::unique_ptr<View> view(const std::vector<Replaced>& replaced = {}) const;

 private:
  void prepare(std::vector<std::filesystem::path> folders, std::optional<Kind> only);
  std::unique_ptr<View> overlay(const std::filesystem::path& own,
                                const std::vector<Replaced>& replaced) const;
  std::unique_ptr<View> copy(const std::filesystem::path& own,
                             const std::vector<Replaced>& replaced) const;

  Kind kind_ = Kind::kOverlay;
  std::filesystem::path here_;  // the working folder
  std::filesystem::path records_;
  std::unique_ptr<ScratchFolder> store_;  // in none of the folders
  std::vector<FolderState> states_;
  mutable int count_ = 0;
};

// The folders that programs are expected to write into: the working folder, theirs, and those that
// their arguments name. Of a checkout all of it. None lies in another.
std::vector<std::filesystem::path> folders_of(const std::vector<ProgramOptions>& programs);

}  // namespace ddp_doctor
