// Examines a program in Python whose ranks are started here, or a command that starts them.
#pragma once

#include "lib/report/report.h"
#include "tool/doctor.h"
#include "tool/program_options.h"

namespace ddp_doctor {

// Throws Error if it cannot be run at all, Interrupted on Ctrl-C. What the program writes goes to
// `streams.err`.
Report examine_program(const ProgramOptions& options, Streams streams);

}  // namespace ddp_doctor
