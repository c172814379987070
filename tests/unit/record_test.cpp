// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sqlite3.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>

#include "lib/record/progress.h"
#include "lib/record/statement.h"
#include "tests/unit/record_fixture.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

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

TEST_F(RecordTest, BoundsTheTimesOfADamagedRecordSoThatTheyCanBeAdded) {
  RecordWriter(folder_, header()).write_step(full_step(1));
  run_sql("UPDATE step SET started_ns = 9223372036854775807, duration_ns = -9223372036854775807");
  const auto step = RecordReader(file()).read().steps.at(0);
  EXPECT_EQ(step.started_ns, std::int64_t{3} << 60);
  EXPECT_EQ(step.duration_ns, -(std::int64_t{1} << 59));
}

TEST_F(RecordTest, BoundsTheElementsOfADamagedRecordSoThatTheyCanBeAdded) {
  RecordWriter(folder_, header())
      .write_tensors({{0, "fc", "parameter", "float32", {3}, 3, true, std::nullopt, ""}});
  run_sql("UPDATE tensor SET numel = -9223372036854775807");
  EXPECT_EQ(RecordReader(file()).read().tensors.at(0).numel, 0);
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
                AllOf(HasSubstr(file().string()), HasSubstr("already has this entry")));
    EXPECT_TRUE(RecordReader(file()).read().steps.empty());
    writer.write_step(full_step(1));
    EXPECT_THROW(writer.write_step(full_step(1)), Error);
  }
  const auto steps = RecordReader(file()).read().steps;
  ASSERT_EQ(steps.size(), 1U);
  expect_same(steps[0], full_step(1));
}

// What docs/record.md promises to those who read it with SQL.
TEST_F(RecordTest, HasItsDigestsInAView) {
  write_record(1);
  const Connection connection(file(), SQLITE_OPEN_READONLY);
  Statement row(connection,
                "SELECT digest FROM observation WHERE step = 1 AND tensor = 1 AND stage = 3");
  row.bind_all();
  ASSERT_TRUE(row.next());
  const auto bits = observation(1, Stage::kBuffer, 0.0).digest.bits;
  EXPECT_THAT(row.blob(0), testing::ElementsAreArray(bits));
}

TEST_F(RecordTest, StoresOnceWhatIsSeenAgain) {
  {
    RecordWriter writer(folder_, header());
    for (int number = 1; number <= 5; ++number) {
      StepRecord step;
      step.step = number;
      step.usages = full_step(number).usages;
      for (const Stage stage : {Stage::kReducedGradient, Stage::kGradient}) {
        auto seen = observation(0, Stage::kGradient, number);
        seen.digest.bits[0] = static_cast<std::uint8_t>(number);
        seen.stage = stage;
        step.observations.push_back(seen);
      }
      writer.write_step(step);
    }
  }
  const Connection connection(file(), SQLITE_OPEN_READONLY);
  Statement row(connection, "SELECT (SELECT COUNT(*) FROM content), (SELECT COUNT(*) FROM seen)");
  row.bind_all();
  ASSERT_TRUE(row.next());
  EXPECT_EQ(row.integer(0), 1 + 5);
  EXPECT_EQ(row.integer(1), 3 * 5);
  const auto steps = RecordReader(file()).read().steps;
  EXPECT_EQ(steps.back().observations.at(0).digest.l2_norm, 5.0);
  EXPECT_EQ(steps.back().observations.at(1).digest.l2_norm, 5.0);
  EXPECT_EQ(steps.back().usages.size(), 4U);
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
              AllOf(HasSubstr(file().string()), HasSubstr("already exists"), HasSubstr("--out")));
  EXPECT_EQ(RecordReader(file()).read().steps.size(), 3U);
}

TEST_F(RecordTest, SaysWhereItCannotCreateTheFolder) {
  std::ofstream(folder_ / "file") << "x";
  EXPECT_THAT(error_of([&] { RecordWriter writer(folder_ / "file/run", header()); }),
              AllOf(HasSubstr("/file: a file with this name exists"), HasSubstr("--out DIR")));
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
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no tmpfs can be mounted here";
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
    if (message.find("free some disk space, or choose another folder with --out DIR") ==
        message.npos) {
      return 4;
    }
    // A further record, and a further progress map.
    RecordHeader second = header();
    second.rank = 1;
    std::ofstream(folder_ / "rest") << std::string(2 << 20, 'x');
    if (error_of([&] { RecordWriter writer(folder_, second); }).find("free some disk space") ==
        std::string::npos) {
      return 5;
    }
    if (fs::exists(record_file(folder_, 1))) return 6;
    if (error_of([&] {
          ProgressWriter progress(progress_file(folder_, 1));
        }).find("free some disk space") == std::string::npos) {
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

TEST(Record, TakesNoNumberFromADamagedSubject) {
  EXPECT_EQ(number_in("optimizer 12", "optimizer"), 12);
  for (const char* damaged : {"optimizer", "optimizer ", "optimizer x", "optimizer 1x", "wrapper 1",
                              "optimizer 99999999999"})
    EXPECT_FALSE(number_in(damaged, "optimizer")) << damaged;
  EXPECT_THAT(ranks_in("2,0"), testing::ElementsAre(2, 0));
  EXPECT_THAT(ranks_in("0,x,,3,"), testing::ElementsAre(0, 3));
}

}  // namespace
}  // namespace ddp_doctor
