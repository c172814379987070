// SPDX-License-Identifier: BSD-3-Clause
// A finding's place in the user's repository, and what identifies it in the next run.
#pragma once

#include <string>

#include "lib/report/render/render.h"

namespace ddp_doctor {

struct SourcePlace {
  std::string file;  // from the root of the repository, with "/"
  int line = 1;
};

// A file of the record as seen from the repository's root; absolute if it lies outside of it.
std::string file_in_repository(const std::string& file, const RenderOptions& options);

// The finding's own place, or else the program's first line: servers drop findings without a place.
SourcePlace place_of(const Finding& finding, const RunReport& run, const RenderOptions& options);

// 32 hexadecimal digits from rule, file and parameters, not from lines or figures, so that it stays
// the same while code above it changes.
std::string fingerprint_of(const Finding& finding, const RunReport& run,
                           const RenderOptions& options);

}  // namespace ddp_doctor
