// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace ddp_doctor {

inline constexpr std::size_t kMaxThreads = 8;

// Calls work(i) for every i below `count`, in parallel; rethrows the first exception.
template <class Work>
void in_parallel(std::size_t count, const Work& work) {
  std::mutex mutex;
  std::size_t next = 0;
  std::exception_ptr failure;
  const auto run = [&] {
    for (;;) {
      std::size_t mine = 0;
      {
        const std::lock_guard lock(mutex);
        if (next == count || failure) return;
        mine = next++;
      }
      try {
        work(mine);
      } catch (...) {
        const std::lock_guard lock(mutex);
        failure = std::current_exception();
      }
    }
  };
  std::vector<std::thread> threads;
  const std::size_t most = std::min<std::size_t>(
      {count, kMaxThreads, std::max(1U, std::thread::hardware_concurrency())});
  for (std::size_t i = 1; i < most; ++i) threads.emplace_back(run);
  run();
  for (auto& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace ddp_doctor
