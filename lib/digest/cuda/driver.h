// SPDX-License-Identifier: BSD-3-Clause
// The CUDA driver of this machine, found at run time: nothing of CUDA is linked, and the context is
// the one of the program's CUDA library (the device's primary context).
//
// Source of names and numbers: the CUDA Driver API, where both are stable.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ddp_doctor::cuda {

using Result = int;  // 0: success
using Handle = void*;
using DevicePointer = std::uint64_t;

constexpr Result kNotReady = 600;
constexpr unsigned kHostPortable = 1, kHostMapped = 2;
constexpr unsigned kEventBlockingSync = 1, kEventNoTiming = 2;
constexpr int kCaptureRelaxed = 2;

struct Driver {
  Result (*init)(unsigned);
  Result (*device_get)(int*, int);
  Result (*primary_context)(Handle*, int);
  Result (*push)(Handle);
  Result (*pop)(Handle*);
  Result (*load_module)(Handle*, const void* image);
  Result (*function)(Handle*, Handle, const char*);
  Result (*global)(DevicePointer*, std::size_t*, Handle, const char*);
  Result (*launch)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   Handle stream, void** arguments, void** extra);
  Result (*copy_to_device)(DevicePointer, const void*, std::size_t, Handle stream);
  Result (*host_allocate)(void**, std::size_t, unsigned);
  Result (*event_create)(Handle*, unsigned);
  Result (*event_record)(Handle, Handle stream);
  Result (*event_query)(Handle);
  Result (*event_wait)(Handle);
  Result (*event_destroy)(Handle);
  Result (*stream_wait)(Handle stream, Handle event, unsigned);
  Result (*stream_capturing)(Handle stream, int*);
  Result (*capture_mode)(int*);
  Result (*error_text)(Result, const char**);
};

// Throws Error if there is no driver, or one older than CUDA 12.
const Driver& driver();
// Throws Error with the driver's own text, unless `result` is 0.
void check(Result result, const char* doing);

}  // namespace ddp_doctor::cuda
