// SPDX-License-Identifier: BSD-3-Clause
// A tensor of the record, identified by its place in a module, and its part in the current step.
// The probe has the tensor itself, which may change.
#pragma once

#include <cstdint>

#include "lib/record/record.h"

namespace ddp_doctor {

struct Parameter {
  TensorInfo info;
  bool replaced = false;  // it is no longer what the wrapper hooked
  bool read = false;      // by an operation of this step, with gradients on
  int since = 0;          // backward passes before it was found
  int arrivals = 0;       // of gradients
  int arrivals_at_step = 0;
  int last_backward = 0;
  bool began = false;             // its weight before its first step was examined
  std::int64_t seen_in = 0;       // the step in which its weight was last examined
  std::int64_t seen_version = 0;  // which every write in place counts up

  int id() const { return info.id; }
  bool is_parameter() const { return info.kind == "parameter"; }
  // Before step `number`: something other than an optimizer wrote it, or it is newer than step 0.
  bool is_written(std::int64_t number, std::int64_t version) const {
    return !began || (seen_in == number - 1 && seen_version != version);
  }
};

}  // namespace ddp_doctor
