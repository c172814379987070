// SPDX-License-Identifier: BSD-3-Clause
// Where the pieces of an installation are, seen from the running executable.
#pragma once

#include <filesystem>

namespace ddp_doctor {

// Holds bin/, libexec/ddp-doctor/ and the examples: a build tree or an installation prefix.
std::filesystem::path installation();
// The rank worker for TorchScript programs. Throws Error if this build has none.
std::filesystem::path script_probe();
// The folder of the probe for Python, for PYTHONPATH. Throws Error if this installation has none.
std::filesystem::path python_probe();
// What looks at tensors on GPUs; there or not.
std::filesystem::path cuda_library();
// The example programs (*.pt). Throws Error if this build has none.
std::filesystem::path examples_folder();

}  // namespace ddp_doctor
