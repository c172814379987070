// SPDX-License-Identifier: BSD-3-Clause
// The input of a fuzzer as a file, for what reads files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>

#include "tests/temporary_folder.h"

namespace ddp_doctor {

// Each call replaces the file of that name; the folder is gone with the process.
inline std::filesystem::path written(const std::uint8_t* data, std::size_t size,
                                     const std::filesystem::path& name) {
  static const TemporaryFolder folder;
  const auto path = folder.path() / name;
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  return path;
}

}  // namespace ddp_doctor
