// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

namespace ddp_doctor {

struct Misspelling {
  std::string word;   // "--evry"
  std::string meant;  // "--every"
};

// The first word that `command` was given and does not know, if one of its flags is a letter or two
// away from it.
std::optional<Misspelling> misspelling(const CLI::App& command);

}  // namespace ddp_doctor
