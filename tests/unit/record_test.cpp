#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sqlite3.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>

#include "lib/error.h"
#include "lib/record/progress.h"
#include "lib/record/reader.h"
#include "lib/record/writer.h"
#include "tests/temporary_folder.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

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

RecordHeader header() {
  RecordHeader header;
  header.rank = 0;
  header.world_size = 4;
  header.probe = "script";
  header.program = "tränen \"quoted\" 'x'.pt";
  header.details = {{"torch", "1.13.1"}, {"strategy", ""}, {"", "empty key"}};
  return header;
}

Observation observation(int tensor, Stage stage, double norm) {
  Observation o;
  o.tensor = tensor;
  o.stage = stage;
  for (int i = 0; i < 16; ++i) o.digest.bits[i] = static_cast<std::uint8_t>(251 * (tensor + i));
  o.digest.l2_norm = norm;
  o.digest.max_abs = norm / 2;
  o.digest.nonfinite = tensor;
  o.digest.numel = 1000 + tensor;
  return o;
}

StepRecord full_step(std::int64_t number) {
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
                    observation(0, Stage::kGradient, kInf), observation(0, Stage::kWeight, kNan),
                    observation(1, Stage::kBuffer, 5e-324)};
  s.usages = {{0, true, false, false, false},
              {1, false, true, false, false},
              {2, false, false, true, false},
              {3, false, false, false, true}};
  s.values = {{0, Stage::kWeight, {0, 1, 255, 0}}, {1, Stage::kBuffer, {7}}};
  return s;
}

void RecordTest::write_record(int steps) const {
  RecordWriter writer(folder_, header());
  for (int step = 1; step <= steps; ++step) writer.write_step(full_step(step));
}

// As ==, but two NaNs are equal.
void expect_same(double actual, double expected) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(actual)) << actual;
  } else {
    EXPECT_EQ(actual, expected);
  }
}

void expect_same(const StepRecord& actual, const StepRecord& expected) {
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

std::string refusal_of(const fs::path& file) {
  return error_of([&] { RecordReader(file).read(); });
}

TEST_F(RecordTest, KeepsHeaderAndDetails) {
  { RecordWriter writer(folder_, header()); }
  const RecordHeader actual = RecordReader(file()).read().header;
  EXPECT_EQ(actual.rank, 0);
  EXPECT_EQ(actual.world_size, 4);
  EXPECT_EQ(actual.probe, "script");
  EXPECT_EQ(actual.program, header().program);
  EXPECT_EQ(actual.details, header().details);
}

TEST_F(RecordTest, KeepsEveryFieldOfATensor) {
  {
    RecordWriter writer(folder_, header());
    writer.write_tensors({{0, "fc.weight", "parameter", "float32", {3, 5}, 15, true, 4, "fc"},
                          {1, "scale", "parameter", "bfloat16", {}, 1, false, std::nullopt, ""}});
    writer.write_tensors({{2, "bn.mean", "buffer", "int64", {0}, 0, false, std::nullopt, "bn"}});
  }
  const auto tensors = RecordReader(file()).read().tensors;
  ASSERT_EQ(tensors.size(), 3U);
  EXPECT_EQ(tensors[0].name, "fc.weight");
  EXPECT_EQ(tensors[0].kind, "parameter");
  EXPECT_EQ(tensors[0].dtype, "float32");
  EXPECT_THAT(tensors[0].sizes, testing::ElementsAre(3, 5));
  EXPECT_EQ(tensors[0].numel, 15);
  EXPECT_TRUE(tensors[0].trainable);
  EXPECT_EQ(tensors[0].ddp_index, 4);
  EXPECT_EQ(tensors[0].module, "fc");
  EXPECT_TRUE(tensors[1].sizes.empty());
  EXPECT_FALSE(tensors[1].trainable);
  EXPECT_EQ(tensors[1].ddp_index, std::nullopt);
  EXPECT_THAT(tensors[2].sizes, testing::ElementsAre(0));
  EXPECT_EQ(tensors[2].id, 2);
  EXPECT_EQ(tensors[2].kind, "buffer");
}

TEST_F(RecordTest, KeepsEveryFieldOfAStep) {
  const StepRecord second = full_step(2);
  StepRecord first;
  first.step = 1;
  {
    RecordWriter writer(folder_, header());
    writer.write_step(second);
    writer.write_step(first);
  }
  const RankRecord record = RecordReader(file()).read();
  ASSERT_EQ(record.steps.size(), 2U);
  expect_same(record.steps[0], first);  // ascending, whatever the order of writing
  expect_same(record.steps[1], second);
}

TEST_F(RecordTest, TellsNoLossFromNanAndInfinity) {
  const std::optional<double> losses[] = {std::nullopt, kNan, kInf, -kInf, 0.0, -1.5};
  {
    RecordWriter writer(folder_, header());
    StepRecord s;
    for (const auto& loss : losses) {
      ++s.step;
      s.loss = loss;
      writer.write_step(s);
    }
  }
  const auto steps = RecordReader(file()).read().steps;
  EXPECT_FALSE(steps[0].loss.has_value());
  for (std::size_t i = 1; i < std::size(losses); ++i) {
    ASSERT_TRUE(steps[i].loss.has_value());
    expect_same(*steps[i].loss, *losses[i]);
  }
}

TEST_F(RecordTest, GivesKeptValuesAndNothingWhereNoneWereKept) {
  write_record(1);
  const RecordReader reader(file());
  EXPECT_THAT(reader.values(1, 0, Stage::kWeight), testing::ElementsAre(0, 1, 255, 0));
  EXPECT_THAT(reader.values(1, 1, Stage::kBuffer), testing::ElementsAre(7));
  EXPECT_TRUE(reader.values(1, 0, Stage::kGradient).empty());
  EXPECT_TRUE(reader.values(2, 0, Stage::kWeight).empty());
}

TEST_F(RecordTest, KeepsEventsInTheirOrder) {
  {
    RecordWriter writer(folder_, header());
    writer.write_event({3, 77, "warning", "backward", "zwei\nZeilen"});
    writer.write_event({3, 76, "error", "optimizer", std::string("a\0b", 3)});
  }
  const auto events = RecordReader(file()).read().events;
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].step, 3);
  EXPECT_EQ(events[0].time_ns, 77);
  EXPECT_EQ(events[0].kind, "warning");
  EXPECT_EQ(events[0].phase, "backward");
  EXPECT_EQ(events[0].text, "zwei\nZeilen");
  EXPECT_EQ(events[1].text, std::string("a\0b", 3));
}

TEST_F(RecordTest, ReplacesADdpFieldOfTheSameMomentAndKey) {
  {
    RecordWriter writer(folder_, header());
    writer.write_ddp_fields(
        {{"runtime", "iteration", "1", true}, {"construction", "iteration", "x", false}});
    writer.write_ddp_fields({{"runtime", "iteration", "2", true}, {"runtime", "new", "", false}});
  }
  const auto fields = RecordReader(file()).read().ddp_fields;
  ASSERT_EQ(fields.size(), 3U);
  EXPECT_EQ(fields[0].value, "2");
  EXPECT_TRUE(fields[0].is_integer);
  EXPECT_EQ(fields[1].moment, "construction");
  EXPECT_EQ(fields[1].value, "x");
  EXPECT_FALSE(fields[1].is_integer);
  EXPECT_EQ(fields[2].key, "new");
}

TEST_F(RecordTest, AFailedStepLeavesTheRecordAsItWas) {
  {
    RecordWriter writer(folder_, header());
    StepRecord bad = full_step(1);
    bad.observations.push_back(bad.observations.front());
    EXPECT_THAT(error_of([&] { writer.write_step(bad); }),
                AllOf(HasSubstr(file().string()), HasSubstr("has this entry already")));
    EXPECT_TRUE(RecordReader(file()).read().steps.empty());
    writer.write_step(full_step(1));
    EXPECT_THROW(writer.write_step(full_step(1)), Error);
  }
  const auto steps = RecordReader(file()).read().steps;
  ASSERT_EQ(steps.size(), 1U);
  expect_same(steps[0], full_step(1));
}

TEST_F(RecordTest, CreatesFoldersThatOnlyTheirOwnerCanRead) {
  const mode_t before = ::umask(0);
  folder_ /= "new/run";
  write_record();
  ::umask(before);
  for (const fs::path& folder : {folder_, folder_.parent_path()}) {
    EXPECT_EQ(fs::status(folder).permissions(), fs::perms::owner_all) << folder;
  }
}

TEST_F(RecordTest, RefusesToWriteOverARecord) {
  write_record();
  EXPECT_THAT(error_of([&] { RecordWriter again(folder_, header()); }),
              AllOf(HasSubstr(file().string()), HasSubstr("exists already"), HasSubstr("--out")));
  EXPECT_EQ(RecordReader(file()).read().steps.size(), 3U);
}

TEST_F(RecordTest, SaysWhereItCannotCreateTheFolder) {
  std::ofstream(folder_ / "file") << "x";
  EXPECT_THAT(error_of([&] { RecordWriter writer(folder_ / "file/run", header()); }),
              AllOf(HasSubstr("/file: there is a file of this name"), HasSubstr("--out DIR")));
}

TEST_F(RecordTest, AClosedRecordIsOneFile) {
  write_record();
  std::vector<fs::path> names;
  for (const auto& entry : fs::directory_iterator(folder_)) names.push_back(entry.path());
  EXPECT_THAT(names, testing::ElementsAre(file()));
}

TEST_F(RecordTest, ANameThatLooksLikeAUriIsAName) {
  folder_ /= "file:a?b#c%20";
  write_record();
  EXPECT_EQ(RecordReader(file()).read().steps.size(), 3U);
}

TEST_F(RecordTest, WritingAfterCloseIsAnError) {
  RecordWriter writer(folder_, header());
  writer.close();
  EXPECT_THAT(error_of([&] { writer.write_step(full_step(1)); }), HasSubstr("closed"));
}

TEST_F(RecordTest, AForkedChildNeitherWritesNorCloses) {
  {
    RecordWriter writer(folder_, header());
    writer.write_step(full_step(1));
    const pid_t child = ::fork();
    if (child == 0) {
      bool refused = false;
      try {
        writer.write_step(full_step(2));
      } catch (const Error&) {
        refused = true;
      }
      writer.close();
      ::_exit(refused ? 0 : 1);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    writer.write_step(full_step(2));
  }
  EXPECT_EQ(RecordReader(file()).read().steps.size(), 2U);
}

TEST_F(RecordTest, IsReadWhileItIsWritten) {
  RecordWriter writer(folder_, header());
  std::atomic<bool> stop = false;
  std::atomic<std::int64_t> written = 0;
  std::thread training([&] {
    StepRecord step = full_step(1);
    step.values[0].bytes.resize(20'000);  // enough for checkpoints to happen on the way
    for (; step.step <= 400 && !stop; ++step.step) {
      writer.write_step(step);
      written = step.step;
    }
    stop = true;
  });
  const RecordReader reader(file());  // one that stays, and new ones
  try {
    while (!stop) {
      const std::int64_t at_least = written;
      for (const RankRecord& record : {reader.read(), RecordReader(file()).read()}) {
        const auto count = static_cast<std::int64_t>(record.steps.size());
        EXPECT_GE(count, at_least);
        if (count == 0) continue;
        EXPECT_EQ(record.steps.back().step, count);
        EXPECT_EQ(record.steps.back().observations.size(), 4U);
        EXPECT_EQ(record.steps.back().usages.size(), 4U);
      }
    }
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
  }
  stop = true;
  training.join();
  EXPECT_EQ(written, 400);
}

TEST_F(RecordTest, RefusesWhatIsNoFile) {
  EXPECT_THAT(refusal_of(folder_ / "nothing.sqlite"),
              AllOf(HasSubstr("nothing.sqlite"), HasSubstr("no such file: give")));
  EXPECT_THAT(refusal_of(folder_), HasSubstr("it is a folder: give"));
  EXPECT_THAT(refusal_of("/dev/null"), HasSubstr("no regular file: give"));
}

TEST_F(RecordTest, RefusesAnEmptyFile) {
  std::ofstream{file()};
  EXPECT_THAT(refusal_of(file()), HasSubstr("it is empty: repeat"));
}

TEST_F(RecordTest, RefusesWhatIsNotSqlite) {
  std::ofstream(file()) << "{}";
  EXPECT_THAT(refusal_of(file()), HasSubstr("not an SQLite file: give"));
  std::ofstream(file()) << std::string(10000, 'x');
  EXPECT_THAT(refusal_of(file()), HasSubstr("not an SQLite file: give"));
}

TEST_F(RecordTest, RefusesADatabaseOfAnotherProgram) {
  run_sql("CREATE TABLE step (step INTEGER); PRAGMA user_version = 9");
  EXPECT_THAT(refusal_of(file()), HasSubstr("SQLite file of another program: give"));
}

TEST_F(RecordTest, RefusesANewerSchema) {
  write_record();
  run_sql("PRAGMA user_version = 2; DROP TABLE usage");
  EXPECT_THAT(refusal_of(file()),
              HasSubstr("written by a newer ddp-doctor (schema 2, this build reads up to 1): "
                        "update ddp-doctor"));
}

TEST_F(RecordTest, RefusesARecordWithoutATable) {
  write_record();
  run_sql("DROP TABLE usage");
  EXPECT_THAT(refusal_of(file()), AllOf(HasSubstr("no table 'usage'"), HasSubstr("copy it again")));
}

TEST_F(RecordTest, RefusesRowsThatNoWriterWrites) {
  for (const char* sql :
       {"DELETE FROM header", "UPDATE observation SET digest = x'00'",
        "UPDATE observation SET stage = 9 WHERE tensor = 1", "DELETE FROM step WHERE step = 2",
        "UPDATE step SET loss = 'much'", "UPDATE step SET backwards = 1000000000000",
        "UPDATE usage SET used = 'x'",
        "INSERT INTO tensor VALUES (0, 'n', 'k', 'd', '[1,', 1, 1, NULL, '')"}) {
    fs::remove(file());
    write_record();
    EXPECT_EQ(refusal_of(file()), "no error");
    run_sql(sql);
    EXPECT_THAT(refusal_of(file()), HasSubstr("damaged")) << sql;
  }
}

TEST_F(RecordTest, RefusesATruncatedFileWhereverItIsCut) {
  write_record(50);
  const auto size = fs::file_size(file());
  const fs::path whole = folder_ / "whole";
  fs::rename(file(), whole);
  std::vector<std::uintmax_t> cuts = {1, 15, 16, 99, 100, 101, 4096, size - 4096, size - 1};
  for (int i = 1; i <= 20; ++i) cuts.push_back(size * i / 21);
  for (const std::uintmax_t cut : cuts) {
    fs::copy_file(whole, file(), fs::copy_options::overwrite_existing);
    fs::resize_file(file(), cut);
    EXPECT_THAT(refusal_of(file()), HasSubstr("damaged or cut short")) << cut << " of " << size;
  }
}

TEST_F(RecordTest, NeverCrashesOnOverwrittenBytes) {
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
  EXPECT_GT(refused, 10);
}

TEST_F(RecordTest, ATruncatedLogGivesWholeSteps) {
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

// Runs `work` in a child in which `folder` is a file system of its own; skips where that is not
// allowed. `work` returns the child's exit status.
template <class Work>
void in_own_mount(const fs::path& folder, const Work& work) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (::unshare(CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) ::_exit(77);
    ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
    if (::mount("ddp-doctor", folder.c_str(), "tmpfs", 0, "size=1m") != 0) ::_exit(77);
    int status = 1;
    try {
      status = work();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    ::_exit(status);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "this process may not mount a tmpfs";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(RecordTest, IsReadFromAReadOnlyMedium) {
  in_own_mount(folder_, [&] {
    write_record();
    const auto remount = MS_REMOUNT | MS_RDONLY;
    if (::mount("ddp-doctor", folder_.c_str(), "tmpfs", remount, nullptr) != 0) return 77;
    return RecordReader(file()).read().steps.size() == 3 ? 0 : 2;
  });
}

TEST_F(RecordTest, IsReadFromAReadOnlyMediumAlthoughItsWriterDiedBeforeAnyStep) {
  in_own_mount(folder_, [&] {
    const pid_t writer = ::fork();
    if (writer == 0) {
      RecordWriter record(folder_, header());
      ::_exit(0);
    }
    ::waitpid(writer, nullptr, 0);
    const auto remount = MS_REMOUNT | MS_RDONLY;
    if (::mount("ddp-doctor", folder_.c_str(), "tmpfs", remount, nullptr) != 0) return 77;
    return RecordReader(file()).read().header.world_size == 4 ? 0 : 2;
  });
}

TEST_F(RecordTest, AFullDiskIsAnErrorAndWhatWasWrittenStays) {
  in_own_mount(folder_, [&] {
    std::int64_t written = 0;
    std::string message;
    {
      RecordWriter writer(folder_, header());
      try {
        for (StepRecord step = full_step(1);; ++step.step) {
          writer.write_step(step);
          written = step.step;
        }
      } catch (const Error& error) {
        message = error.what();
      }
      if (RecordReader(file()).read().steps.size() != std::size_t(written)) return 2;
    }
    const auto steps = RecordReader(file()).read().steps;
    if (written < 10 || steps.size() != std::size_t(written)) return 3;
    std::fprintf(stderr, "%s\n", message.c_str());
    if (message.find("free space there, or write elsewhere with --out DIR") == message.npos) {
      return 4;
    }
    // A further record, and a further progress map.
    RecordHeader second = header();
    second.rank = 1;
    std::ofstream(folder_ / "rest") << std::string(2 << 20, 'x');
    if (error_of([&] { RecordWriter writer(folder_, second); }).find("free space") ==
        std::string::npos) {
      return 5;
    }
    if (fs::exists(record_file(folder_, 1))) return 6;
    if (error_of([&] { ProgressWriter progress(progress_file(folder_, 1)); }).find("free space") ==
        std::string::npos) {
      return 7;
    }
    return 0;
  });
}

TEST_F(RecordTest, NamesItsFilesByRank) {
  EXPECT_EQ(record_file("run", 7), fs::path("run/rank-00007.sqlite"));
  EXPECT_EQ(progress_file("run", 123456), fs::path("run/rank-123456.progress"));
}

TEST_F(RecordTest, ProgressIsSeenFromOutside) {
  const fs::path map = progress_file(folder_, 0);
  ProgressWriter writer(map);
  EXPECT_EQ(read_progress(map).phase, Phase::kStarting);
  EXPECT_EQ(read_progress(map).changed_ns, 0);
  writer.enter(Phase::kBackward, 12);
  const Progress first = read_progress(map);
  EXPECT_EQ(first.phase, Phase::kBackward);
  EXPECT_EQ(first.step, 12);
  EXPECT_GT(first.changed_ns, 0);
  EXPECT_EQ(writer.phase(), Phase::kBackward);
  EXPECT_EQ(writer.step(), 12);
  writer.enter(Phase::kFinished, 13);
  EXPECT_GE(read_progress(map).changed_ns, first.changed_ns);
  EXPECT_EQ(read_progress(map).phase, Phase::kFinished);
}

TEST_F(RecordTest, ProgressOfNoMapIsTheDefault) {
  const fs::path map = folder_ / "map";
  for (const std::string& content : {std::string(), std::string("DDPd"), std::string(64, 'x')}) {
    std::ofstream(map) << content;
    EXPECT_EQ(read_progress(map).phase, Phase::kStarting);
    EXPECT_EQ(read_progress(map).step, 0);
  }
  EXPECT_EQ(read_progress(folder_ / "nothing").step, 0);
  EXPECT_EQ(read_progress(folder_).step, 0);
}

TEST_F(RecordTest, ProgressThatCannotBeCreatedIsAnError) {
  EXPECT_THAT(error_of([&] { ProgressWriter writer(folder_ / "no/map"); }),
              AllOf(HasSubstr("no/map"), HasSubstr("--out DIR")));
}

TEST(PhaseNames, AreDistinct) {
  EXPECT_STREQ(name_of(Phase::kStarting), "starting");
  EXPECT_STREQ(name_of(Phase::kRecording), "recording");
  EXPECT_STREQ(name_of(Phase::kFinished), "finished");
}

}  // namespace
}  // namespace ddp_doctor
