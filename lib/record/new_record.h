// SPDX-License-Identifier: BSD-3-Clause
// Makes a record. It comes into being whole: schema and header are written under another name, and
// link() gives the file its own. So a reader never meets a record without its header, and of two
// writers of one rank exactly one succeeds.
#pragma once

#include <filesystem>

#include "lib/record/record.h"
#include "lib/record/statement.h"

namespace ddp_doctor {

// Creates `folder` (mode 0700) where needed and `file` in it, open for writing. Throws Error when
// the folder cannot be written, the disk is full, or the file exists already.
Connection create_record(const std::filesystem::path& folder, const std::filesystem::path& file,
                         const RecordHeader& header);

// What an SQLite error means to whoever writes a record. Throws Error.
[[noreturn]] void refuse_to_write(const std::filesystem::path& file, const SqliteError& error);

}  // namespace ddp_doctor
