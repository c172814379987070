// SPDX-License-Identifier: BSD-3-Clause
// Writes the diagnostics of lib/log.h to a stream. The only file that uses spdlog is
// log_output.cpp.
#pragma once

#include <ostream>

namespace ddp_doctor {

// From its construction to its destruction; one at a time.
class LogOutput {
 public:
  // `verbose`: how often -v was given. DDP_DOCTOR_LOG (off, warn, info or debug) takes precedence.
  // Throws Error if that is none of these.
  LogOutput(std::ostream& stream, int verbose);
  ~LogOutput();
  LogOutput(const LogOutput&) = delete;
  LogOutput& operator=(const LogOutput&) = delete;
};

}  // namespace ddp_doctor
