#include "lib/digest/kernel_loops.h"

namespace ddp_doctor {

const Kernel kBaselineKernel{"baseline", hash, add_block};

}  // namespace ddp_doctor
