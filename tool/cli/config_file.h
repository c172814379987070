// SPDX-License-Identifier: BSD-3-Clause
// ddp-doctor.toml: defaults for the flags of each command, in a table of its name, and what the
// user states of placements, in [placement].
#pragma once

#include <CLI/CLI.hpp>
#include <memory>

#include "lib/record/stated.h"

namespace ddp_doctor {

// For CLI::App::config_formatter. CLI11 knows the flags, toml++ the language: CLI11's own reader
// takes neither comments at the end of a line nor lists that begin on a line of their own. Throws
// Error if the file is not TOML, or contains something that is not the value of a flag. Fills in
// `placement`.
std::shared_ptr<CLI::Config> toml_reader(StatedPlacements& placement);

}  // namespace ddp_doctor
