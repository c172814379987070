// SPDX-License-Identifier: BSD-3-Clause
// Rows of a record of a real run, changed: what SQLite accepts and no probe wrote.
// DDP_DOCTOR_FUZZ_RUN: a folder of `ddp-doctor run --out`.
#include <fuzzer/FuzzedDataProvider.h>
#include <sqlite3.h>

#include <cstdlib>
#include <iostream>
#include <sstream>
#include <vector>

#include "lib/error.h"
#include "lib/report/render/render.h"
#include "tests/temporary_folder.h"
#include "tool/examine/examination.h"

namespace {

namespace fs = std::filesystem;

fs::path original;

struct Column {
  std::string table, name;
};

void run(sqlite3* database, const std::string& sql) {
  sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr);
}

std::vector<Column> columns_of(sqlite3* database) {
  std::vector<Column> columns;
  constexpr const char* kAll =
      "SELECT t.name, c.name FROM sqlite_master t, pragma_table_info(t.name) c "
      "WHERE t.type = 'table' ORDER BY 1, 2";
  sqlite3_stmt* rows = nullptr;
  sqlite3_prepare_v2(database, kAll, -1, &rows, nullptr);
  const auto text = [&](int i) {
    return std::string(reinterpret_cast<const char*>(sqlite3_column_text(rows, i)));
  };
  while (sqlite3_step(rows) == SQLITE_ROW) columns.push_back({text(0), text(1)});
  sqlite3_finalize(rows);
  return columns;
}

// One value of one row.
void change(sqlite3* database, const Column& column, FuzzedDataProvider& data) {
  const std::string sql = "UPDATE OR IGNORE \"" + column.table + "\" SET \"" + column.name +
                          "\" = ?1 WHERE \"" + column.name + "\" IS (SELECT \"" + column.name +
                          "\" FROM \"" + column.table + "\" LIMIT 1 OFFSET ?2)";
  sqlite3_stmt* update = nullptr;
  if (sqlite3_prepare_v2(database, sql.c_str(), -1, &update, nullptr) != SQLITE_OK) return;
  sqlite3_bind_int(update, 2, data.ConsumeIntegralInRange(0, 60));
  const int kind = data.ConsumeIntegralInRange(0, 4);
  if (kind == 0) {
    sqlite3_bind_int64(update, 1, data.ConsumeIntegral<std::int64_t>());
  } else if (kind == 1) {
    sqlite3_bind_int64(update, 1, data.ConsumeIntegralInRange(-2, 300));
  } else if (kind == 2) {
    sqlite3_bind_null(update, 1);
  } else {
    const auto bytes = data.ConsumeBytesAsString(data.ConsumeIntegralInRange<std::size_t>(0, 4096));
    const auto size = static_cast<int>(bytes.size());
    kind == 3 ? sqlite3_bind_text(update, 1, bytes.data(), size, SQLITE_TRANSIENT)
              : sqlite3_bind_blob(update, 1, bytes.data(), size, SQLITE_TRANSIENT);
  }
  sqlite3_step(update);
  sqlite3_finalize(update);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* folder = std::getenv("DDP_DOCTOR_FUZZ_RUN");
  if (folder == nullptr || !fs::is_directory(folder)) {
    std::cerr << "set DDP_DOCTOR_FUZZ_RUN to a folder of `ddp-doctor run --out`\n";
    std::exit(2);
  }
  original = folder;
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  static const ddp_doctor::TemporaryFolder folder;
  FuzzedDataProvider data(bytes, size);
  const auto copy = folder.path() / "run";
  if (!fs::exists(copy)) fs::copy(original, copy, fs::copy_options::recursive);
  const auto changed = fs::path("00-as-is") / "rank-00000.sqlite";
  for (const char* beside : {"", "-wal", "-shm"}) fs::remove(copy / (changed.string() + beside));
  fs::copy_file(original / changed, copy / changed);
  sqlite3* database = nullptr;
  sqlite3_open((copy / changed).c_str(), &database);
  run(database, "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN");
  static const auto columns = columns_of(database);
  for (int i = data.ConsumeIntegralInRange(1, 5); i > 0; --i)
    change(database, columns.at(data.ConsumeIntegralInRange<std::size_t>(0, columns.size() - 1)),
           data);
  run(database, "COMMIT");
  sqlite3_close(database);
  try {
    std::ostringstream out;
    render_text(ddp_doctor::read_examination(copy), {}, out);
  } catch (const ddp_doctor::Error&) {
  }
  return 0;
}
