// SPDX-License-Identifier: BSD-3-Clause
// A question to git about a repository, or an order.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace ddp_doctor {

// What `git -C folder ARGS...` prints, without the last newline. In English, without hooks. Throws
// Error with what it says if it fails.
std::string git(const std::filesystem::path& folder, const std::vector<std::string>& args);
// Whether it succeeds.
bool git_agrees(const std::filesystem::path& folder, const std::vector<std::string>& args);
// The same in lines.
std::vector<std::string> git_lines(const std::filesystem::path& folder,
                                   const std::vector<std::string>& args);

}  // namespace ddp_doctor
