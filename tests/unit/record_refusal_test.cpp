// SPDX-License-Identifier: BSD-3-Clause
// What is no record, or no longer one, is refused with its own message; what is left of one is read
// whole.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "tests/unit/record_fixture.h"

namespace ddp_doctor {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class RecordRefusal : public RecordTest {};

TEST_F(RecordRefusal, RefusesWhatIsNoFile) {
  EXPECT_THAT(refusal_of(folder_ / "nothing.sqlite"),
              AllOf(HasSubstr("nothing.sqlite"), HasSubstr("no such file: give")));
  EXPECT_THAT(refusal_of(folder_), HasSubstr("it is a folder: give"));
  EXPECT_THAT(refusal_of("/dev/null"), HasSubstr("not a regular file: give"));
}

TEST_F(RecordRefusal, RefusesAnEmptyFile) {
  std::ofstream{file()};
  EXPECT_THAT(refusal_of(file()), HasSubstr("it is empty: repeat"));
}

TEST_F(RecordRefusal, RefusesWhatIsNotSqlite) {
  std::ofstream(file()) << "{}";
  EXPECT_THAT(refusal_of(file()), HasSubstr("not an SQLite file: give"));
  std::ofstream(file()) << std::string(10000, 'x');
  EXPECT_THAT(refusal_of(file()), HasSubstr("not an SQLite file: give"));
}

TEST_F(RecordRefusal, RefusesADatabaseOfAnotherProgram) {
  run_sql("CREATE TABLE step (step INTEGER); PRAGMA user_version = 9");
  EXPECT_THAT(refusal_of(file()), HasSubstr("another program wrote this SQLite file: give"));
}

TEST_F(RecordRefusal, RefusesANewerSchema) {
  write_record();
  run_sql("PRAGMA user_version = 3; DROP TABLE seen");
  EXPECT_THAT(refusal_of(file()),
              HasSubstr("written by a newer ddp-doctor (schema 3, this build reads up to 2): "
                        "update ddp-doctor"));
}

TEST_F(RecordRefusal, RefusesASchemaBeforeTheFirstRelease) {
  write_record();
  run_sql("PRAGMA user_version = 1; DROP TABLE seen");
  EXPECT_THAT(refusal_of(file()), HasSubstr("written by an older ddp-doctor (schema 1, this build "
                                            "reads from 2): repeat the run"));
}

TEST_F(RecordRefusal, RefusesARecordWithoutATable) {
  write_record();
  run_sql("DROP TABLE seen");
  EXPECT_THAT(refusal_of(file()), AllOf(HasSubstr("no table 'seen'"), HasSubstr("copy it again")));
}

TEST_F(RecordRefusal, RefusesRowsThatNoWriterWrites) {
  for (const char* sql :
       {"DELETE FROM header", "UPDATE seen SET root = x'00'", "UPDATE content SET bytes = x'00'",
        "UPDATE seen SET stage = 9 WHERE stage = 3", "UPDATE seen SET what = 3 WHERE what = 2",
        "DELETE FROM tensor_list WHERE position = 1", "DELETE FROM step WHERE step = 2",
        "UPDATE step SET loss = 'much'", "UPDATE step SET backwards = 1000000000000",
        "INSERT INTO tensor VALUES (0, 'n', 'k', 'd', '[1,', 1, 1, NULL, '', NULL)"}) {
    fs::remove(file());
    write_record();
    EXPECT_EQ(refusal_of(file()), "no error");
    run_sql(sql);
    EXPECT_THAT(refusal_of(file()), HasSubstr("damaged")) << sql;
  }
}

TEST_F(RecordRefusal, RefusesATruncatedFileWhereverItIsCut) {
  write_record(50);
  const auto size = fs::file_size(file());
  const fs::path whole = folder_ / "whole";
  fs::rename(file(), whole);
  std::vector<std::uintmax_t> cuts = {1, 15, 16, 99, 100, 101, 4096, size - 4096, size - 1};
  for (int i = 1; i <= 20; ++i) cuts.push_back(size * i / 21);
  for (const std::uintmax_t cut : cuts) {
    fs::copy_file(whole, file(), fs::copy_options::overwrite_existing);
    fs::resize_file(file(), cut);
    EXPECT_THAT(refusal_of(file()), HasSubstr("damaged or truncated")) << cut << " of " << size;
  }
}

TEST_F(RecordRefusal, NeverCrashesOnOverwrittenBytes) {
  write_record(50);
  const auto size = fs::file_size(file());
  const fs::path whole = folder_ / "whole";
  fs::rename(file(), whole);
  int refused = 0;
  for (int i = 0; i < 40; ++i) {
    fs::copy_file(whole, file(), fs::copy_options::overwrite_existing);
    std::fstream out(file(), std::ios::in | std::ios::out | std::ios::binary);
    out.seekp(static_cast<std::streamoff>(size * i / 40));
    out << std::string(300, static_cast<char>(37 * i));
    out.close();
    refused += refusal_of(file()) == "no error" ? 0 : 1;
  }
  EXPECT_GT(refused, 5);  // damage inside a figure cannot be told from the figure
}

TEST_F(RecordRefusal, ATruncatedLogGivesWholeSteps) {
  const fs::path copy = folder_ / "copy.sqlite";
  const fs::path log = copy.string() + "-wal";
  RecordWriter writer(folder_, header());
  for (int step = 1; step <= 20; ++step) writer.write_step(full_step(step));
  const auto size = fs::file_size(file().string() + "-wal");
  std::size_t last = 0;
  for (int i = 0; i <= 20; ++i) {
    fs::remove(copy.string() + "-shm");
    fs::copy_file(file(), copy, fs::copy_options::overwrite_existing);
    fs::copy_file(file().string() + "-wal", log, fs::copy_options::overwrite_existing);
    fs::resize_file(log, size * i / 20);
    const auto steps = RecordReader(copy).read().steps;
    for (std::size_t s = 0; s < steps.size(); ++s) {
      expect_same(steps[s], full_step(static_cast<std::int64_t>(s) + 1));
    }
    EXPECT_GE(steps.size(), last);
    last = steps.size();
  }
  EXPECT_EQ(last, 20U);
}

}  // namespace
}  // namespace ddp_doctor
