// SPDX-License-Identifier: BSD-3-Clause
// Executables that examine themselves: C++ programs with a ddp_doctor::Examination.
#pragma once

#include <filesystem>

namespace ddp_doctor {

// True if `file` is an executable (ELF) that contains kExaminedProgramMark. A launcher such as
// mpirun does not, and neither does a program that has its Examination in a shared library.
bool examines_itself(const std::filesystem::path& file);

}  // namespace ddp_doctor
