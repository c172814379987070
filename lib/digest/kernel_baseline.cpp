// SPDX-License-Identifier: BSD-3-Clause
#include "lib/digest/kernel_loops.h"

namespace ddp_doctor {

const Kernel kBaselineKernel{"baseline", hash, digest_block};

}  // namespace ddp_doctor
