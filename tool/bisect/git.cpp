// SPDX-License-Identifier: BSD-3-Clause
#include "tool/bisect/git.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sstream>

#include "lib/error.h"
#include "tool/system/capture.h"

namespace ddp_doctor {
namespace {

Answer ask_git(const std::filesystem::path& folder, const std::vector<std::string>& args) {
  std::vector<std::string> command = {
      "/usr/bin/env",  "LC_ALL=C", "GIT_TERMINAL_PROMPT=0",    "git", "-C",
      folder.string(), "-c",       "core.hooksPath=/dev/null", "-c",  "advice.detachedHead=false"};
  command.insert(command.end(), args.begin(), args.end());
  return ask(command, std::chrono::minutes(30));  // a checkout may be large
}

}  // namespace

std::string git(const std::filesystem::path& folder, const std::vector<std::string>& args) {
  Answer answer = ask_git(folder, args);
  if (answer.status == 127) throw Error("git was not found on PATH; install it");
  if (answer.status != 0) {
    while (answer.err.ends_with('\n')) answer.err.pop_back();
    throw Error(fmt::format("git {} failed{}{}; run it yourself to see why", fmt::join(args, " "),
                            answer.err.empty() ? "" : ": ", answer.err));
  }
  while (answer.out.ends_with('\n')) answer.out.pop_back();
  return answer.out;
}

bool git_agrees(const std::filesystem::path& folder, const std::vector<std::string>& args) {
  return ask_git(folder, args).status == 0;
}

std::vector<std::string> git_lines(const std::filesystem::path& folder,
                                   const std::vector<std::string>& args) {
  std::vector<std::string> lines;
  std::istringstream in(git(folder, args));
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace ddp_doctor
