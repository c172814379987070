// SPDX-License-Identifier: BSD-3-Clause
// ddp-doctor.toml.
#include <sstream>

#include "lib/error.h"
#include "tool/cli/config_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::istringstream in(std::string(reinterpret_cast<const char*>(data), size));
  ddp_doctor::StatedPlacements placement;
  try {
    ddp_doctor::toml_reader(placement)->from_config(in);
  } catch (const ddp_doctor::Error&) {
  } catch (const CLI::Error&) {
  }
  return 0;
}
