// SPDX-License-Identifier: BSD-3-Clause
// The rank's call log (call_log.h): its calls that wait for other ranks, all in one group.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "lib/record/call_log.h"

namespace ddp_doctor {

class CollectiveCalls {
 public:
  explicit CollectiveCalls(const std::filesystem::path& file) : log_(file) {}

  void begin_step(std::int64_t step) { step_ = step; }

  // Does `work` as "ddp.construct", "ddp.forward" or "ddp.backward" of the only wrapper. `paired`:
  // it waits for the other ranks.
  template <class Work>
  auto of_wrapper(const char* op, bool paired, Work&& work) {
    const Scope scope(log_, wrapper_call(op, paired));
    return work();
  }

  // Does `work` as the sum of a gradient by hand. `name`: of its parameter; empty for a buffer that
  // holds many.
  template <class Work>
  auto all_reduce(const at::Tensor& gradient, const std::string& name, Work&& work) {
    const Scope scope(log_, gradient_call(gradient, name));
    return work();
  }

 private:
  class Scope {
   public:
    Scope(CallLog& log, const LoggedCall& call) : log_(log), number_(log.begin(call)) {}
    ~Scope() { log_.end(number_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    CallLog& log_;
    std::int64_t number_;
  };

  LoggedCall wrapper_call(const char* op, bool paired);
  LoggedCall gradient_call(const at::Tensor& gradient, const std::string& name);

  CallLog log_;
  std::int64_t step_ = 0;
  std::int64_t position_ = 0;
};

}  // namespace ddp_doctor
