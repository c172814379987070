// SPDX-License-Identifier: BSD-3-Clause
#include "lib/digest/kernel.h"

#include "lib/digest/kernel_sets.h"

namespace ddp_doctor {

const std::vector<const Kernel*>& kernels() {
  static const std::vector<const Kernel*> runnable = [] {
    std::vector<const Kernel*> found = {&kBaselineKernel};
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
      found.push_back(&kAvx2Kernel);
#endif
    return found;
  }();
  return runnable;
}

}  // namespace ddp_doctor
