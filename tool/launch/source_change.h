// SPDX-License-Identifier: BSD-3-Clause
// Where in a Python program a change belongs: asked of Python's own parser.
#pragma once

#include <filesystem>

#include "lib/report/value/report.h"

namespace ddp_doctor {

// Each answer is asked for once. Where that interpreter cannot tell, or is another machine's: of
// python3 on PATH.
PlaceChange place_by(const std::filesystem::path& python);

}  // namespace ddp_doctor
