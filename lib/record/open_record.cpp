// SPDX-License-Identifier: BSD-3-Clause
#include "lib/record/open_record.h"

#include <algorithm>
#include <fstream>
#include <set>

#include "lib/error.h"
#include "lib/record/reader.h"
#include "lib/record/schema.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSqliteMagic("SQLite format 3\0", 16);

[[noreturn]] void refuse(const fs::path& file, const std::string& reason) {
  throw RecordError("cannot read " + file.string() + ": " + reason);
}

[[noreturn]] void refuse_damaged(const fs::path& file, const std::string& reason) {
  refuse(file,
         "the record is damaged or truncated (" + reason +
             "): copy it again, together with its -wal file if there is one, or repeat the run");
}

std::uintmax_t size_or_zero(const fs::path& file) {
  std::error_code ignored;
  const std::uintmax_t size = fs::file_size(file, ignored);
  return ignored ? 0 : size;
}

// A log or journal that SQLite must take into account.
bool needs_recovery(const fs::path& file) {
  return size_or_zero(file.string() + "-wal") > 0 || size_or_zero(file.string() + "-journal") > 0;
}

std::uint32_t big_endian(const std::string& bytes, std::size_t at, std::size_t count) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < count; ++i) {
    value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  }
  return value;
}

// Checks that need no SQLite, whose messages would not tell the user what to do. Also, SQLite reads
// the missing part of the last page as zeros.
void check_file(const fs::path& file) {
  const fs::file_status status = fs::status(file);
  if (!fs::exists(status)) refuse(file, "there is no such file: give the folder of a recorded run");
  if (fs::is_directory(status)) {
    refuse(file, "it is a folder: give a rank-*.sqlite file inside it");
  }
  if (!fs::is_regular_file(status))
    refuse(file, "it is not a regular file: give a rank-*.sqlite file");
  // In this order: a running writer only makes the file longer than its header states.
  const bool log = needs_recovery(file);
  std::string start(100, '\0');
  std::ifstream in(file, std::ios::binary);
  if (!in) refuse(file, "it cannot be opened: check its permissions");
  in.read(start.data(), static_cast<std::streamsize>(start.size()));
  const auto got = static_cast<std::size_t>(in.gcount());
  const std::uintmax_t size = size_or_zero(file);
  if (got == 0) refuse(file, "it is empty: repeat the run, or remove the file");
  if (start.compare(0, std::min(got, kSqliteMagic.size()),
                    kSqliteMagic.substr(0, std::min(got, kSqliteMagic.size()))) != 0) {
    refuse(file, "it is not an SQLite file: give a rank-*.sqlite file that ddp-doctor wrote");
  }
  if (got < start.size()) refuse_damaged(file, std::to_string(size) + " bytes");
  std::uintmax_t page = big_endian(start, 16, 2);
  if (page == 1) page = 65536;
  // With a log, pages may be in the log but not yet in the file.
  const std::uintmax_t expected = log ? page : page * big_endian(start, 28, 4);
  if (page == 0 || size < expected || size % page != 0) {
    refuse_damaged(file, std::to_string(size) + " bytes, at least " + std::to_string(expected) +
                             " are needed in pages of " + std::to_string(page));
  }
}

std::int64_t pragma(const Connection& connection, const char* sql) {
  Statement statement(connection, sql);
  statement.bind_all();
  if (!statement.next()) throw SqliteError(SQLITE_CORRUPT, "a PRAGMA gave no value");
  return statement.integer(0);
}

// Refuses SQLite files that are not records, or that this build cannot read.
void check_record(const fs::path& file, const Connection& connection) {
  if (pragma(connection, "PRAGMA application_id") != kApplicationId) {
    refuse(
        file,
        "another program wrote this SQLite file: give a rank-*.sqlite file that ddp-doctor wrote");
  }
  const std::int64_t version = pragma(connection, "PRAGMA user_version");
  if (version > kSchemaVersion) {
    refuse(file, "written by a newer ddp-doctor (schema " + std::to_string(version) +
                     ", this build reads up to " + std::to_string(kSchemaVersion) +
                     "): update ddp-doctor");
  }
  if (version < 1) refuse_damaged(file, "schema " + std::to_string(version));
  if (version < kOldestVersion) {
    refuse(file, "written by an older ddp-doctor (schema " + std::to_string(version) +
                     ", this build reads from " + std::to_string(kOldestVersion) +
                     "): repeat the run, or read it with the ddp-doctor that wrote it");
  }
  std::set<std::string> tables;
  Statement names(connection, "SELECT name FROM sqlite_master WHERE type = 'table'");
  names.bind_all();
  while (names.next()) tables.insert(names.text(0));
  for (const char* table : schema_tables()) {
    if (!tables.contains(table)) refuse_damaged(file, std::string("no table '") + table + "'");
  }
}

// SQLite reads the file, its locks and its log only at the first statement.
Connection open_with(const fs::path& file, int flags, bool immutable) {
  Connection connection(file, flags, immutable);
  sqlite3_busy_timeout(connection.get(), 5000);
  pragma(connection, "PRAGMA schema_version");
  return connection;
}

// Read-only first. That fails for two kinds of records whose writer was killed: one with a rollback
// journal needs a connection that may write, and one in a read-only folder needs SQLite to believe
// that it does not change, which is right only if there is no log with something in it.
Connection open_existing(const fs::path& file) {
  try {
    return open_with(file, SQLITE_OPEN_READONLY, false);
  } catch (const SqliteError& error) {
    const int code = error.primary_code();
    if (code != SQLITE_CANTOPEN && code != SQLITE_READONLY) throw;
  }
  if (needs_recovery(file)) return open_with(file, SQLITE_OPEN_READWRITE, false);
  return open_with(file, SQLITE_OPEN_READONLY, true);
}

}  // namespace

void refuse_record(const fs::path& file, const SqliteError& error) {
  switch (error.primary_code()) {
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      refuse(file, std::string(error.what()) +
                       ": check its permissions; if its writer was killed and the folder is "
                       "read-only, copy the folder to a writable place");
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      refuse(file, std::string(error.what()) + ": another program has locked it, try again later");
    case SQLITE_FULL:
    case SQLITE_IOERR:
      refuse(file,
             std::string(error.what()) +
                 ": if the disk is full, free some space, or copy the folder to another disk");
    case SQLITE_NOMEM:
      refuse(file, std::string(error.what()) + ": free some memory and try again");
    default:
      refuse_damaged(file, error.what());
  }
}

Connection open_record(const fs::path& file) {
  check_file(file);
  try {
    Connection connection = open_existing(file);
    check_record(file, connection);
    return connection;
  } catch (const SqliteError& error) {
    refuse_record(file, error);
  }
}

}  // namespace ddp_doctor
