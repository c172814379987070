// SPDX-License-Identifier: BSD-3-Clause
// What kind of program is this file? Told from its name and its first bytes, before any process is
// started.
#pragma once

#include <filesystem>

namespace ddp_doctor {

enum class ProgramKind { kTorchScript, kPython };

// Throws Error, naming what the file is instead and the next action, if it is neither a script in
// Python (*.py) nor a zip archive that may hold a TorchScript program.
ProgramKind kind_of_program(const std::filesystem::path& file);

}  // namespace ddp_doctor
