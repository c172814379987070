// SPDX-License-Identifier: BSD-3-Clause
// What becomes known of how a process ended: from its status, its progress map, its record and its
// output.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "lib/record/run_info.h"

namespace ddp_doctor {

class Relay;

// Now, as RankExit::time_ns counts.
std::int64_t exit_time_ns();

// `status` as waitpid gives it; the time is now.
void note_status(RankExit& exit, int status);

// Where in its program the rank was.
void note_progress(RankExit& exit, const std::filesystem::path& folder);

// What the record says of the end: "end", "error", or nothing.
std::string recorded_end(const std::filesystem::path& folder, int rank);

// The program's own message where it left one, otherwise the end of what it wrote.
std::string last_words(const Relay& relay);

}  // namespace ddp_doctor
