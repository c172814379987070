// SPDX-License-Identifier: BSD-3-Clause
// The root of the user's repository, from which servers name source files.
#pragma once

#include <filesystem>

namespace ddp_doctor {

struct SourceRoot {
  std::filesystem::path root;  // the nearest folder upwards that holds .git; without one, `folder`
  std::filesystem::path folder;  // the working folder
};

SourceRoot source_root();

}  // namespace ddp_doctor
