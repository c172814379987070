// SPDX-License-Identifier: BSD-3-Clause
#include "lib/record/statement.h"

#include <cmath>
#include <limits>
#include <system_error>
#include <utility>

namespace ddp_doctor {
namespace {

constexpr std::string_view kNan = "nan";

// SQLite's message, with the system's message if a system call failed.
SqliteError error_of(sqlite3* connection, int code) {
  std::string message = sqlite3_errmsg(connection);
  const int primary = code & 0xff;
  const int reason = sqlite3_system_errno(connection);
  if (reason != 0 && (primary == SQLITE_IOERR || primary == SQLITE_CANTOPEN)) {
    message += " (" + std::generic_category().message(reason) + ")";
  }
  return {code, message};
}

// A file name as a URI, for the options that only a URI can carry.
std::string uri_of(const std::string& path) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string uri = "file:";
  for (const char c : path) {
    if (c == '?' || c == '#' || c == '%') {
      uri += '%';
      uri += kDigits[static_cast<unsigned char>(c) >> 4];
      uri += kDigits[c & 0xf];
    } else {
      uri += c;
    }
  }
  return uri + "?immutable=1";
}

}  // namespace

Connection::Connection(const std::filesystem::path& file, int flags, bool immutable) {
  // An absolute name, so that a folder named "file:" is not taken for a URI.
  std::string name = std::filesystem::absolute(file).string();
  if (immutable) {
    name = uri_of(name);
    flags |= SQLITE_OPEN_URI;
  }
  const int code = sqlite3_open_v2(name.c_str(), &handle_, flags, nullptr);
  if (code != SQLITE_OK) {
    const SqliteError error = handle_ != nullptr
                                  ? error_of(handle_, sqlite3_extended_errcode(handle_))
                                  : SqliteError(code, "out of memory");
    sqlite3_close_v2(handle_);
    throw error;
  }
  sqlite3_extended_result_codes(handle_, 1);
}

Connection::~Connection() { sqlite3_close_v2(handle_); }

Connection::Connection(Connection&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)) {}

void Connection::run(const std::string& sql) {
  const int code = sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) throw error_of(handle_, code);
}

Statement::Statement(const Connection& connection, const char* sql) {
  const int code =
      sqlite3_prepare_v3(connection.get(), sql, -1, SQLITE_PREPARE_PERSISTENT, &handle_, nullptr);
  if (code != SQLITE_OK) throw error_of(connection.get(), code);
}

Statement::~Statement() { sqlite3_finalize(handle_); }

bool Statement::next() {
  const int code = sqlite3_step(handle_);
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) check(code);
  sqlite3_reset(handle_);
  return false;
}

void Statement::finish() {
  while (next()) {
  }
}

void Statement::check(int code) const {
  if (code == SQLITE_OK) return;
  const SqliteError error = error_of(sqlite3_db_handle(handle_), code);
  sqlite3_reset(handle_);
  throw error;
}

void Statement::bind(int index, std::int64_t value) {
  check(sqlite3_bind_int64(handle_, index, value));
}

void Statement::bind(int index, double value) {
  if (std::isnan(value)) return bind(index, kNan);
  check(sqlite3_bind_double(handle_, index, value));
}

void Statement::bind(int index, std::string_view value) {
  // A null pointer would bind NULL; an empty text is a text.
  check(sqlite3_bind_text64(handle_, index, value.empty() ? "" : value.data(), value.size(),
                            SQLITE_STATIC, SQLITE_UTF8));
}

void Statement::bind(int index, std::span<const std::uint8_t> value) {
  if (value.empty()) return check(sqlite3_bind_zeroblob(handle_, index, 0));
  check(sqlite3_bind_blob64(handle_, index, value.data(), value.size(), SQLITE_STATIC));
}

void Statement::require(int column, int type) const {
  if (sqlite3_column_type(handle_, column) == type) return;
  throw SqliteError(SQLITE_CORRUPT, std::string("column '") + sqlite3_column_name(handle_, column) +
                                        "' holds a value of the wrong type");
}

std::int64_t Statement::integer(int column) const {
  require(column, SQLITE_INTEGER);
  return sqlite3_column_int64(handle_, column);
}

int Statement::small(int column) const {
  const std::int64_t value = integer(column);
  if (!std::in_range<int>(value)) {
    throw SqliteError(SQLITE_CORRUPT, std::string("column '") +
                                          sqlite3_column_name(handle_, column) + "' holds " +
                                          std::to_string(value) + ", which is out of range");
  }
  return static_cast<int>(value);
}

double Statement::real(int column) const {
  if (sqlite3_column_type(handle_, column) == SQLITE_TEXT && text(column) == kNan) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  require(column, SQLITE_FLOAT);
  return sqlite3_column_double(handle_, column);
}

std::string Statement::text(int column) const {
  require(column, SQLITE_TEXT);
  const auto* first = reinterpret_cast<const char*>(sqlite3_column_text(handle_, column));
  return {first, static_cast<std::size_t>(sqlite3_column_bytes(handle_, column))};
}

std::vector<std::uint8_t> Statement::blob(int column) const {
  require(column, SQLITE_BLOB);
  const auto* first = static_cast<const std::uint8_t*>(sqlite3_column_blob(handle_, column));
  return {first, first + sqlite3_column_bytes(handle_, column)};
}

bool Statement::is_null(int column) const {
  return sqlite3_column_type(handle_, column) == SQLITE_NULL;
}

Transaction::Transaction(Connection& connection, const char* mode) : connection_(connection) {
  connection_.run(std::string("BEGIN ") + mode);
}

Transaction::~Transaction() {
  // SQLite has rolled back by itself after some errors, a full disk among them.
  if (connection_.in_transaction()) {
    sqlite3_exec(connection_.get(), "ROLLBACK", nullptr, nullptr, nullptr);
  }
}

void Transaction::commit() { connection_.run("COMMIT"); }

}  // namespace ddp_doctor
