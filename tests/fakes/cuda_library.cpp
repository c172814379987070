// SPDX-License-Identifier: BSD-3-Clause
// libddp-doctor-cuda.so where there is no GPU: tensors lie in the memory of the CPU, a warp of
// threads digests at them, and who waits for it waits while ddpc_fake_hold() holds. Device 7 does
// not exist, device 8 breaks.
#include <atomic>

#include "lib/digest/cuda/cuda_api.h"
#include "tests/unit/warp_fixture.h"

using namespace ddp_doctor;
using namespace ddp_doctor::cuda;

struct ddpc_batch {
  FoundByCpu found;
  int device;
};

namespace {
std::atomic<int> held = 0;
}

extern "C" {

void ddpc_fake_hold(int hold) {
  held = hold;
  held.notify_all();
}

const char* ddpc_error(void) { return "there is no GPU of this number"; }

ddpc_batch* ddpc_begin(int device, void* /*stream*/, int64_t count, const ddpc_tensor* tensors,
                       int copy) {
  if (device == 7) return nullptr;
  std::vector<DeviceTensor> list;
  for (std::int64_t i = 0; i < count; ++i)
    list.push_back({tensors[i].data, static_cast<DType>(tensors[i].dtype), tensors[i].numel});
  return new ddpc_batch{FoundByCpu(list, copy != 0), device};
}

int ddpc_wait(ddpc_batch* batch) {
  held.wait(1);
  return batch->device == 8 ? -1 : 0;
}

int ddpc_result(const ddpc_batch* batch, int64_t tensor, ddpc_digest* result) {
  const DeviceDigest seen = batch->found.result(static_cast<std::size_t>(tensor));
  std::copy(seen.digest.bits.begin(), seen.digest.bits.end(), result->bits);
  result->l2_norm = seen.digest.l2_norm;
  result->max_abs = seen.digest.max_abs;
  result->nonfinite = seen.digest.nonfinite;
  result->numel = seen.digest.numel;
  result->sample_count = static_cast<int32_t>(seen.samples.size());
  std::copy(seen.samples.begin(), seen.samples.end(), result->samples);
  result->copy = seen.copy.empty() ? nullptr : seen.copy.data();
  result->copy_bytes = static_cast<int64_t>(seen.copy.size());
  return 0;
}

void ddpc_end(ddpc_batch* batch) { delete batch; }
}
