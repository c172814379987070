// SPDX-License-Identifier: BSD-3-Clause
#include <iostream>

#include "tool/cli/doctor.h"

int main(int argc, char** argv) {
  return ddp_doctor::run_doctor({argv + 1, argv + argc}, {std::cout, std::cerr});
}
