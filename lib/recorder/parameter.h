// SPDX-License-Identifier: BSD-3-Clause
// A tensor's part in the current step. The probe has the tensor itself, which may change, and what
// the record says of it.
#pragma once

#include <cstdint>

namespace ddp_doctor {

// The Python probe has the same fields in the same order, as a structure of ctypes (entry.py).
struct Parameter {
  std::int64_t numel = 0;
  std::int64_t since = 0;     // backward passes before it was found
  std::int64_t arrivals = 0;  // of gradients
  std::int64_t arrivals_at_step = 0;
  std::int64_t last_backward = 0;
  std::int64_t seen_in = 0;       // the step in which its weight was last examined
  std::int64_t seen_version = 0;  // which every write in place counts up
  std::int64_t seen_address = 0;  // another one after its storage was replaced
  std::int32_t id = 0;
  std::int32_t in_wrapper = -1;  // -1: in none
  std::int32_t in_reducer = -1;  // its index there; -1: the reducer does not have it
  bool is_parameter = true;      // or a buffer
  bool trainable = true;
  bool managed = false;   // what shards it also takes its gradients out of the graph
  bool replaced = false;  // it is no longer what the wrapper hooked
  bool read = false;      // by an operation of this step, with gradients on
  bool began = false;     // its weight before its first step was examined

  bool is_reduced() const { return in_reducer >= 0; }
  // Before step `number`: something other than an optimizer wrote it, or it is newer than step 0.
  bool is_written(std::int64_t number, std::int64_t version, std::int64_t address = 0) const {
    return !began ||
           (seen_in == number - 1 && (seen_version != version || seen_address != address));
  }
  void was_seen(std::int64_t number, std::int64_t version, std::int64_t address = 0) {
    seen_in = number;
    seen_version = version;
    seen_address = address;
  }
};

}  // namespace ddp_doctor
