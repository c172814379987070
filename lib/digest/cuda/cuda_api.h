// SPDX-License-Identifier: BSD-3-Clause
/* libddp-doctor-cuda.so: digests of tensors in the memory of a GPU. Its own library, which is
 * loaded when a program has the first such tensor, and links neither CUDA nor torch;
 * lib/digest/device.h calls it.
 *
 * Looking is asked for on the program's own stream, and done there in its turn. What is found is
 * there once ddpc_wait() has returned. Any thread may call any function. Those that can fail return
 * null or a negative number, and ddpc_error() says why, for the calling thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddpc_batch ddpc_batch;

/* Contiguous elements, which may begin at any of them. */
typedef struct {
  const void* data;
  int32_t dtype; /* DType of lib/digest/digest.h */
  int64_t numel;
} ddpc_tensor;

typedef struct {
  uint8_t bits[16];
  double l2_norm, max_abs;
  int64_t nonfinite, numel;
  int32_t sample_count;
  double samples[8];
  const void* copy; /* null unless wanted; lives as long as the batch */
  int64_t copy_bytes;
} ddpc_digest;

const char* ddpc_error(void);

/* `stream`: a CUstream of `device`, null for the default one. The tensors must stay as they are
 * until the stream has come so far, as for a kernel of the program's own. A stream that is being
 * captured into a graph is refused. */
ddpc_batch* ddpc_begin(int device, void* stream, int64_t count, const ddpc_tensor* tensors,
                       int copy);
/* Returns when all of it has been looked at; the thread sleeps until then. */
int ddpc_wait(ddpc_batch* batch);
/* Of a batch that was waited for. */
int ddpc_result(const ddpc_batch* batch, int64_t tensor, ddpc_digest* result);
void ddpc_end(ddpc_batch* batch);

#ifdef __cplusplus
}
#endif
