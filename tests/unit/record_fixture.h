// SPDX-License-Identifier: BSD-3-Clause
// A folder with a small record in it, and what the tests of records compare with.
#pragma once

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "lib/error.h"
#include "lib/record/reader.h"
#include "lib/record/writer.h"
#include "tests/temporary_folder.h"

namespace ddp_doctor {

namespace fs = std::filesystem;

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInf = std::numeric_limits<double>::infinity();

class RecordTest : public testing::Test {
 protected:
  fs::path file() const { return record_file(folder_, 0); }

  // A small record of `steps` steps, closed.
  void write_record(int steps = 3) const;

  void run_sql(const std::string& sql) const {
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(file().c_str(), &database), SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(database);
    sqlite3_close(database);
  }

  TemporaryFolder temporary_;
  fs::path folder_ = temporary_.path();
};

inline RecordHeader header() {
  RecordHeader header;
  header.rank = 0;
  header.world_size = 4;
  header.probe = "script";
  header.program = "tränen \"quoted\" 'x'.pt";
  header.details = {{"torch", "1.13.1"}, {"strategy", ""}, {"", "empty key"}};
  return header;
}

inline Observation observation(int tensor, Stage stage, double norm) {
  Observation o;
  o.tensor = tensor;
  o.stage = stage;
  for (int i = 0; i < 16; ++i)
    o.digest.bits[i] = static_cast<std::uint8_t>(251 * (tensor + i) + static_cast<int>(stage));
  o.digest.l2_norm = norm;
  o.digest.max_abs = norm / 2;
  o.digest.nonfinite = tensor;
  o.digest.numel = 1000 + tensor;
  return o;
}

inline StepRecord full_step(std::int64_t number) {
  StepRecord s;
  s.step = number;
  s.loss = 0.1 * static_cast<double>(number);
  s.started_ns = 1'700'000'000'000'000'001;
  s.duration_ns = 12;
  s.probe_ns = 13;
  s.backwards = 4;
  s.unsynchronized_backwards = 3;
  s.forwards_through_wrapper = 5;
  s.forwards_around_wrapper = 6;
  s.collectives = 7;
  s.collective_bytes = 5'000'000'000;
  s.observations = {observation(0, Stage::kLocalGradient, 0.1),
                    observation(0, Stage::kGradient, kInf), observation(1, Stage::kGradient, 1.0),
                    observation(0, Stage::kWeight, kNan), observation(1, Stage::kBuffer, 5e-324)};
  s.usages = {{0, true, false, false, false, 3, 2},
              {1, false, true, std::nullopt, false, 0, 0, true},
              {2, false, std::nullopt, true, false, 0, 0, false, false},
              {3, false, false, false, true, 0, 0, false, true, true}};
  s.optimizer = 1;
  s.examined = number % 2 == 0;
  s.skipped = true;
  s.scale = 1024.0;
  s.trace = "F0+ B0+";
  s.calls = {
      {"all_reduce", "sum", "float32", 12, "0,2", "before-step", "gradient of w", "t.py", 7, 3},
      {"barrier", "", "", 0, "", "outside", "", "t.py", 9, 1}};
  s.samples = {{1, Stage::kReducedGradient, {}}, {0, Stage::kWeightBefore, {0.5, kNan, 0.1}}};
  s.values = {{0, Stage::kWeight, {0, 1, 255, 0}}, {1, Stage::kBuffer, {7}}};
  return s;
}

inline void RecordTest::write_record(int steps) const {
  RecordWriter writer(folder_, header());
  for (int step = 1; step <= steps; ++step) writer.write_step(full_step(step));
}

// As ==, but two NaNs are equal.
inline void expect_same(double actual, double expected) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(actual)) << actual;
  } else {
    EXPECT_EQ(actual, expected);
  }
}

inline void expect_same(const StepRecord& actual, const StepRecord& expected) {
  EXPECT_EQ(actual.step, expected.step);
  ASSERT_EQ(actual.loss.has_value(), expected.loss.has_value());
  if (expected.loss) expect_same(*actual.loss, *expected.loss);
  EXPECT_EQ(actual.started_ns, expected.started_ns);
  EXPECT_EQ(actual.duration_ns, expected.duration_ns);
  EXPECT_EQ(actual.probe_ns, expected.probe_ns);
  EXPECT_EQ(actual.backwards, expected.backwards);
  EXPECT_EQ(actual.unsynchronized_backwards, expected.unsynchronized_backwards);
  EXPECT_EQ(actual.forwards_through_wrapper, expected.forwards_through_wrapper);
  EXPECT_EQ(actual.forwards_around_wrapper, expected.forwards_around_wrapper);
  EXPECT_EQ(actual.collectives, expected.collectives);
  EXPECT_EQ(actual.collective_bytes, expected.collective_bytes);
  ASSERT_EQ(actual.observations.size(), expected.observations.size());
  for (std::size_t i = 0; i < expected.observations.size(); ++i) {
    const Observation& a = actual.observations[i];
    const Observation& e = expected.observations[i];
    EXPECT_EQ(a.tensor, e.tensor);
    EXPECT_EQ(a.stage, e.stage);
    EXPECT_EQ(a.digest.bits, e.digest.bits);
    expect_same(a.digest.l2_norm, e.digest.l2_norm);
    expect_same(a.digest.max_abs, e.digest.max_abs);
    EXPECT_EQ(a.digest.nonfinite, e.digest.nonfinite);
    EXPECT_EQ(a.digest.numel, e.digest.numel);
  }
  ASSERT_EQ(actual.usages.size(), expected.usages.size());
  for (std::size_t i = 0; i < expected.usages.size(); ++i) {
    EXPECT_EQ(actual.usages[i].tensor, expected.usages[i].tensor);
    EXPECT_EQ(actual.usages[i].used, expected.usages[i].used);
    EXPECT_EQ(actual.usages[i].reached, expected.usages[i].reached);
    EXPECT_EQ(actual.usages[i].in_output, expected.usages[i].in_output);
    EXPECT_EQ(actual.usages[i].frozen, expected.usages[i].frozen);
    EXPECT_EQ(actual.usages[i].arrivals, expected.usages[i].arrivals);
    EXPECT_EQ(actual.usages[i].last_backward, expected.usages[i].last_backward);
    EXPECT_EQ(actual.usages[i].replaced, expected.usages[i].replaced);
    EXPECT_EQ(actual.usages[i].in_optimizer, expected.usages[i].in_optimizer);
    EXPECT_EQ(actual.usages[i].assigned, expected.usages[i].assigned);
  }
  EXPECT_EQ(actual.optimizer, expected.optimizer);
  EXPECT_EQ(actual.examined, expected.examined);
  EXPECT_EQ(actual.skipped, expected.skipped);
  EXPECT_EQ(actual.scale, expected.scale);
  EXPECT_EQ(actual.trace, expected.trace);
  ASSERT_EQ(actual.calls.size(), expected.calls.size());
  for (std::size_t i = 0; i < expected.calls.size(); ++i) {
    const Collective& a = actual.calls[i];
    const Collective& e = expected.calls[i];
    EXPECT_EQ(std::tie(a.op, a.reduce, a.dtype, a.numel, a.group, a.moment, a.target, a.file,
                       a.line, a.count),
              std::tie(e.op, e.reduce, e.dtype, e.numel, e.group, e.moment, e.target, e.file,
                       e.line, e.count));
  }
  ASSERT_EQ(actual.samples.size(), expected.samples.size());
  for (std::size_t i = 0; i < expected.samples.size(); ++i) {
    EXPECT_EQ(actual.samples[i].tensor, expected.samples[i].tensor);
    EXPECT_EQ(actual.samples[i].stage, expected.samples[i].stage);
    ASSERT_EQ(actual.samples[i].values.size(), expected.samples[i].values.size());
    for (std::size_t k = 0; k < expected.samples[i].values.size(); ++k)
      expect_same(actual.samples[i].values[k], expected.samples[i].values[k]);
  }
}

template <class Work>
std::string error_of(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

inline std::string refusal_of(const fs::path& file) {
  return error_of([&] { RecordReader(file).read(); });
}

}  // namespace ddp_doctor
