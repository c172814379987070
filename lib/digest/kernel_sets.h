// SPDX-License-Identifier: BSD-3-Clause
// kernel_loops.h as compiled with different options: lib/CMakeLists.txt says which.
#pragma once

#include "lib/digest/kernel.h"

namespace ddp_doctor {

extern const Kernel kBaselineKernel;
#if defined(__x86_64__)
extern const Kernel kAvx2Kernel;
#endif

}  // namespace ddp_doctor
