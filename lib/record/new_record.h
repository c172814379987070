// SPDX-License-Identifier: BSD-3-Clause
// Creates a record atomically: schema and header are written under a temporary name, then link()
// gives the file its final name. So a reader never sees a record without its header, and of two
// writers for one rank exactly one succeeds.
#pragma once

#include <filesystem>

#include "lib/record/record.h"
#include "lib/record/statement.h"

namespace ddp_doctor {

// Creates `folder` (mode 0700) if needed and `file` in it, open for writing. Throws Error if the
// folder is not writable, the disk is full, or the file already exists.
Connection create_record(const std::filesystem::path& folder, const std::filesystem::path& file,
                         const RecordHeader& header);

// Throws an Error that explains an SQLite error while writing a record.
[[noreturn]] void refuse_to_write(const std::filesystem::path& file, const SqliteError& error);

}  // namespace ddp_doctor
