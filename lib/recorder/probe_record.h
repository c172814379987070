// SPDX-License-Identifier: BSD-3-Clause
// What a ddpd_record is, for what is compiled with the C API.
#pragma once

#include "lib/recorder/recorder.h"

struct ddpd_record : ddp_doctor::Recorder {
  using Recorder::Recorder;
};
