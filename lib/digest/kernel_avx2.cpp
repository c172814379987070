// SPDX-License-Identifier: BSD-3-Clause
#include "lib/digest/kernel_loops.h"

namespace ddp_doctor {

const Kernel kAvx2Kernel{"avx2", hash, digest_block};

}  // namespace ddp_doctor
