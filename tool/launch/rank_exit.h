// SPDX-License-Identifier: BSD-3-Clause
// How a process ended: from its status, its progress map, its record and its output.
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

// How the rank ended according to its record: "end", "error", or empty.
std::string recorded_end(const std::filesystem::path& folder, int rank);

// The program's own message where it left one, otherwise the end of what it wrote.
std::string last_words(const Relay& relay);

}  // namespace ddp_doctor
