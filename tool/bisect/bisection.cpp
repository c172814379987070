// SPDX-License-Identifier: BSD-3-Clause
#include "tool/bisect/bisection.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "lib/error.h"
#include "lib/log.h"
#include "tool/bisect/git.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;

std::string commit_of(const fs::path& repository, const std::string& revision) {
  if (!git_agrees(repository,
                  {"rev-parse", "--verify", "--quiet", "--end-of-options", revision + "^{commit}"}))
    throw Error(fmt::format("{}: no such commit in {}; give a hash, a tag or a branch", revision,
                            repository.string()));
  return git(repository, {"rev-parse", "--verify", "--end-of-options", revision + "^{commit}"});
}

fs::path temporary_folder() {
  const char* given = std::getenv("TMPDIR");
  std::string pattern =
      (fs::path(given != nullptr && *given != '\0' ? given : "/tmp") / "ddp-doctor-bisect-XXXXXX")
          .string();
  if (mkdtemp(pattern.data()) == nullptr)
    throw Error(fmt::format(
        "cannot create a temporary directory {}: {}; set TMPDIR to a writable directory", pattern,
        std::strerror(errno)));
  return pattern;
}

}  // namespace

Bisection::Bisection(const std::string& good, const std::string& bad) {
  const fs::path here = fs::current_path();
  if (!git_agrees(here, {"rev-parse", "--show-toplevel"}))
    throw Error(fmt::format("{}: not in a git repository; change to the directory of the program",
                            here.string()));
  repository_ = git(here, {"rev-parse", "--show-toplevel"});
  below_ = git(here, {"rev-parse", "--show-prefix"});
  good_ = {commit_of(repository_, good)};
  bad_ = commit_of(repository_, bad);
  if (good_.front() == bad_ ||
      !git_agrees(repository_, {"merge-base", "--is-ancestor", good_.front(), bad_}))
    throw Error(
        fmt::format("{} is not an ancestor of {}; give a good commit that the bad one descends "
                    "from",
                    good, bad));
  commits_ = std::stoul(git(repository_, {"rev-list", "--count", good_.front() + ".." + bad_})) + 1;
  const fs::path folder = temporary_folder();
  worktree_ = folder / "tree";
  try {
    git(repository_, {"worktree", "add", "--detach", "--quiet", worktree_.string(), bad_});
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
    throw;
  }
}

Bisection::~Bisection() {
  git_agrees(repository_, {"worktree", "remove", "--force", worktree_.string()});
  std::error_code failure;
  fs::remove_all(worktree_.parent_path(), failure);
  if (failure) log::warn("{} cannot be removed: {}", worktree_.string(), failure.message());
  git_agrees(repository_, {"worktree", "prune"});
}

std::vector<std::string> Bisection::left() const {
  std::vector<std::string> arguments = {"rev-list", "--bisect-all", bad_, "--not"};
  arguments.insert(arguments.end(), good_.begin(), good_.end());
  std::vector<std::string> commits;
  for (const auto& line : git_lines(repository_, arguments)) {
    if (!line.ends_with(')')) continue;  // the output was truncated; the best candidates come first
    const std::string commit = line.substr(0, line.find(' '));  // "HASH (dist=3)"
    if (commit != bad_) commits.push_back(commit);
  }
  return commits;
}

// The best candidate comes first. Commits that cannot be examined are often neighbors, so each one
// in a row doubles the next jump.
std::optional<std::string> Bisection::next() const {
  std::vector<std::string> candidates = left();
  std::erase_if(candidates, [&](const auto& commit) { return skipped_.contains(commit); });
  if (candidates.empty()) return {};
  const auto jump = (std::size_t{1} << std::min(skips_in_a_row_, 16)) - 1;
  return candidates[std::min(jump, candidates.size() - 1)];
}

fs::path Bisection::check_out(const std::string& commit) {
  git(worktree_, {"checkout", "--detach", "--force", "--quiet", commit});
  git(worktree_, {"clean", "-ffdxq"});
  const fs::path folder = worktree_ / below_;
  if (!fs::is_directory(folder))
    throw Error(fmt::format("the commit has no directory {}", below_.string()));
  return folder;
}

void Bisection::good(const std::string& commit) {
  good_.push_back(commit);
  skips_in_a_row_ = 0;
}

void Bisection::bad(const std::string& commit) {
  bad_ = commit;
  skips_in_a_row_ = 0;
}

void Bisection::skip(const std::string& commit) {
  skipped_.insert(commit);
  ++skips_in_a_row_;
}

}  // namespace ddp_doctor
