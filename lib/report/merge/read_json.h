// SPDX-License-Identifier: BSD-3-Clause
// Reads what render_json wrote, as far as merging and rendering need it.
#pragma once

#include <string>

#include "lib/report/value/report.h"

namespace ddp_doctor {

// `name`: of the file, for messages. Throws Error if it is not a report of one run, is truncated,
// or was written by another version without what merging needs.
Report read_report(const std::string& text, const std::string& name);

}  // namespace ddp_doctor
