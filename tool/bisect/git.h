// SPDX-License-Identifier: BSD-3-Clause
// Runs git in a repository.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace ddp_doctor {

// The output of `git -C folder ARGS...`, without the last newline. In English, without hooks.
// Throws Error with git's message if it fails.
std::string git(const std::filesystem::path& folder, const std::vector<std::string>& args);
// Whether it succeeds.
bool git_agrees(const std::filesystem::path& folder, const std::vector<std::string>& args);
// The same in lines.
std::vector<std::string> git_lines(const std::filesystem::path& folder,
                                   const std::vector<std::string>& args);

}  // namespace ddp_doctor
