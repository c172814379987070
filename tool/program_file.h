// Is this file a TorchScript program? Told from its first bytes, before any process is started.
#pragma once

#include <filesystem>

namespace ddp_doctor {

// Throws Error, naming what the file is instead and the next action, unless it is a zip archive
// that may hold a TorchScript program.
void require_torchscript(const std::filesystem::path& file);

}  // namespace ddp_doctor
