// SPDX-License-Identifier: BSD-3-Clause
// Writes the row of a step through the C API, as that of an optimizer of its own.
#pragma once

#include <cmath>

#include "lib/recorder/probe_api.h"

namespace ddp_doctor {

inline int write_row(ddpd_record* record, int optimizer) {
  const ddpd_row row{.started_ns = 0,
                     .duration_ns = 0,
                     .scale = std::nan(""),
                     .optimizer = optimizer,
                     .skipped = 0};
  ddpd_take_row(record, &row);
  return ddpd_write_row(record, 1, 0);
}

inline int write_step_0(ddpd_record* record) { return write_row(record, -1); }

inline int write_step(ddpd_record* record) {
  const int optimizer = ddpd_optimizer(record);
  const int failed = write_row(record, optimizer);
  ddpd_step_closed(record, optimizer);
  return failed;
}

}  // namespace ddp_doctor
