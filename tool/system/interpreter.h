// SPDX-License-Identifier: BSD-3-Clause
// Which Python runs the user's program: the first that has torch, found without importing torch.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace ddp_doctor {

struct Interpreter {
  std::string found_as;        // "--python", "$VIRTUAL_ENV", "python3 on PATH", ...
  std::filesystem::path path;  // empty: there is none
  std::string python;          // its version
  std::string torch;           // torch's version; empty: it has none
  std::string why_not;         // why it cannot be used; empty: it can
};

// The variable of the environment that sets --python.
inline constexpr char kPythonSetting[] = "DDP_DOCTOR_PYTHON";

// All candidates, in order of preference; only `given` (--python) if it is not empty.
std::vector<Interpreter> interpreters(const std::string& given);

// The first that has torch. Throws Error with the reason for each candidate if none has.
Interpreter choose_interpreter(const std::string& given);

// An executable by its path, or by its name on PATH; empty if there is none.
std::filesystem::path find_executable(const std::string& name);

}  // namespace ddp_doctor
