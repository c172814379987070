// SPDX-License-Identifier: BSD-3-Clause
// A report again, from what render_json wrote: all that merging and rendering ask for.
#pragma once

#include <string>

#include "lib/report/report.h"

namespace ddp_doctor {

// `name`: of the file, for messages. Throws Error where it is no report of one run, is cut off, or
// was written by another version that lacks what merging needs.
Report read_report(const std::string& text, const std::string& name);

}  // namespace ddp_doctor
