// SPDX-License-Identifier: BSD-3-Clause
// SQLite with C++ lifetimes: a connection and a prepared statement. Both throw SqliteError, whose
// code lets the reader and the writer explain the error.
//
// Doubles keep their value through a round trip, NaN included (schema.cpp says how). Texts may
// contain NUL. Neither class may be used by two threads at a time.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/error.h"

namespace ddp_doctor {

class SqliteError : public Error {
 public:
  // `code` is an extended result code.
  SqliteError(int code, const std::string& message) : Error(message), code_(code) {}
  int code() const { return code_; }
  int primary_code() const { return code_ & 0xff; }

 private:
  int code_;
};

class Connection {
 public:
  // `flags` are those of sqlite3_open_v2. `immutable` tells SQLite that nothing changes the file,
  // so that it needs no lock and no extra file.
  Connection(const std::filesystem::path& file, int flags, bool immutable = false);
  ~Connection();
  Connection(Connection&& other) noexcept;
  Connection& operator=(Connection&&) = delete;

  sqlite3* get() const { return handle_; }
  void run(const std::string& sql);
  bool in_transaction() const { return sqlite3_get_autocommit(handle_) == 0; }

 private:
  sqlite3* handle_ = nullptr;
};

class Statement {
 public:
  Statement(const Connection& connection, const char* sql);
  ~Statement();
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  // Binds `values` to the parameters in their order and runs the statement to its end.
  template <class... Values>
  void run(const Values&... values) {
    bind_all(values...);
    finish();
  }

  // Restarts the query; next() then steps through its rows.
  template <class... Values>
  void bind_all(const Values&... values) {
    sqlite3_reset(handle_);
    int index = 0;
    (bind(++index, values), ...);
  }
  bool next();
  // Ends the query before its last row.
  void reset() { sqlite3_reset(handle_); }

  // Columns of the current row, counted from 0. Each throws if the column holds another type.
  std::int64_t integer(int column) const;
  int small(int column) const;  // an int's range
  bool flag(int column) const { return integer(column) != 0; }
  double real(int column) const;
  std::string text(int column) const;
  std::vector<std::uint8_t> blob(int column) const;
  bool is_null(int column) const;

 private:
  void bind(int index, std::int64_t value);
  void bind(int index, int value) { bind(index, std::int64_t{value}); }
  void bind(int index, bool value) { bind(index, std::int64_t{value}); }
  void bind(int index, double value);
  void bind(int index, const char* value) = delete;  // would become a bool
  void bind(int index, std::string_view value);
  void bind(int index, const std::string& value) { bind(index, std::string_view(value)); }
  void bind(int index, std::span<const std::uint8_t> value);
  template <class T>
  void bind(int index, const std::optional<T>& value) {
    if (value) {
      bind(index, *value);
    } else {
      check(sqlite3_bind_null(handle_, index));
    }
  }

  void finish();
  void check(int code) const;
  void require(int column, int type) const;

  sqlite3_stmt* handle_ = nullptr;
};

// One transaction: rolled back unless committed.
class Transaction {
 public:
  // `mode` is "DEFERRED" for reading, "IMMEDIATE" for writing.
  Transaction(Connection& connection, const char* mode);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit();

 private:
  Connection& connection_;
};

}  // namespace ddp_doctor
