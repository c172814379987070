// SPDX-License-Identifier: BSD-3-Clause
// Which commit was the first bad one? The commits between a good and a bad one, halved by git's own
// bisection, each checked out in a worktree of its own: the user's checkout is not touched.
#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace ddp_doctor {

class Bisection {
 public:
  // `good` must be an ancestor of `bad`. Throws Error.
  Bisection(const std::string& good, const std::string& bad);
  // Removes the worktree.
  ~Bisection();
  Bisection(const Bisection&) = delete;
  Bisection& operator=(const Bisection&) = delete;

  // The commit to examine next; nothing if the first bad one is known, or if none of the remaining
  // ones can be examined.
  std::optional<std::string> next() const;

  // Checks it out and returns the folder there that corresponds to the one in which ddp-doctor was
  // started. Files of commits examined before are removed. Throws Error if the commit has no such
  // folder.
  std::filesystem::path check_out(const std::string& commit);

  void good(const std::string& commit);
  void bad(const std::string& commit);
  void skip(const std::string& commit);

  // Untested commits that may be the first bad one, without the one that is known to be bad.
  std::vector<std::string> left() const;
  const std::string& first_bad() const { return bad_; }
  std::size_t commits() const { return commits_; }  // from good to bad, both included

  const std::filesystem::path& repository() const { return repository_; }
  const std::filesystem::path& worktree() const { return worktree_; }

 private:
  std::filesystem::path repository_;  // the user's checkout
  std::filesystem::path below_;       // where in it ddp-doctor was started
  std::filesystem::path worktree_;
  std::vector<std::string> good_;
  std::string bad_;
  std::set<std::string> skipped_;
  int skips_in_a_row_ = 0;
  std::size_t commits_ = 0;
};

}  // namespace ddp_doctor
