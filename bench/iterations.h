// SPDX-License-Identifier: BSD-3-Clause
// For instructions.py, which counts instructions of two runs that differ in nothing but their
// number of iterations.
#pragma once

#include <benchmark/benchmark.h>

#include <cstdlib>

namespace ddp_doctor {

// Exactly DDP_DOCTOR_BENCH_ITERATIONS iterations if that is set; otherwise as many as take long
// enough.
inline void as_often_as_asked(benchmark::internal::Benchmark* benchmark) {
  const char* asked = std::getenv("DDP_DOCTOR_BENCH_ITERATIONS");
  if (asked != nullptr) benchmark->Iterations(std::atoll(asked));
}

}  // namespace ddp_doctor
