// SPDX-License-Identifier: BSD-3-Clause
// Opens a record for reading, or explains to the user why that fails.
#pragma once

#include <filesystem>

#include "lib/record/statement.h"

namespace ddp_doctor {

// Throws RecordError, with the next action, if `file` is missing, not SQLite, truncated, not a
// record, or of a schema version that this build does not read.
Connection open_record(const std::filesystem::path& file);

// Throws a RecordError that explains an SQLite error on an open record.
[[noreturn]] void refuse_record(const std::filesystem::path& file, const SqliteError& error);

}  // namespace ddp_doctor
