// SPDX-License-Identifier: BSD-3-Clause
// Executables that examine themselves: C++ programs with a ddp_doctor::Examination.
#pragma once

#include <filesystem>

namespace ddp_doctor {

// True if `file` is an executable (ELF) with the mark of one in it. A launcher such as mpirun has
// none, and neither has a program that has its Examination in a shared library.
bool examines_itself(const std::filesystem::path& file);

}  // namespace ddp_doctor
