// SPDX-License-Identifier: BSD-3-Clause
// Launching and watching processes, with shells in the place of ranks.

#include "tool/launch/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "lib/error.h"
#include "tests/temporary_folder.h"
#include "tool/launch/free_port.h"
#include "tool/launch/relay.h"
#include "tool/system/process_table.h"

namespace ddp_doctor {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

std::string content_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

class Launching : public testing::Test {
 protected:
  Launched run(const std::vector<std::string>& scripts, seconds stall_timeout = seconds(60)) {
    Launch start;
    for (std::size_t rank = 0; rank < scripts.size(); ++rank) {
      start.programs.push_back({{"/bin/sh", "-c", scripts[rank]},
                                own_environment(),
                                static_cast<int>(rank),
                                "[" + std::to_string(rank) + "] "});
    }
    start.folder = folder_.path();
    start.pass_on = &heard_;
    start.timeouts.still = start.timeouts.busy = stall_timeout;
    return launch(start);
  }

  TemporaryFolder folder_;
  std::ostringstream heard_;
};

TEST_F(Launching, TellsHowEachRankEnded) {
  const auto launched = run({"exit 0", "echo out; echo last >&2; exit 3", "kill -9 $$"});
  ASSERT_EQ(launched.exits.size(), 3u);
  EXPECT_EQ(launched.exits[0].kind, RankExit::Kind::kExited);
  EXPECT_EQ(launched.exits[0].code, 0);
  EXPECT_EQ(launched.exits[1].code, 3);
  EXPECT_EQ(launched.exits[1].last_words, "out\nlast");
  EXPECT_EQ(launched.exits[2].kind, RankExit::Kind::kSignaled);
  EXPECT_EQ(launched.exits[2].code, 9);
  EXPECT_EQ(heard_.str(), "[1] out\n[1] last\n");
  EXPECT_EQ(content_of(folder_.path() / "rank-00001.log"), "out\nlast\n");
}

TEST_F(Launching, NeitherWaitsForWhoIsLeftBehindNorLeavesIt) {
  const auto pid_file = folder_.path() / "pid";
  const auto began = std::chrono::steady_clock::now();
  run({"setsid sleep 300 & echo $! > " + pid_file.string() + "; exit 0"});
  EXPECT_LT(std::chrono::steady_clock::now() - began, seconds(10));
  const auto left = look_at_process(std::stoi(content_of(pid_file)));
  EXPECT_TRUE(!left || left->ended);
}

TEST_F(Launching, EndsWhatDoesNotMove) {
  const auto launched = run({"sleep 300"}, seconds(1));
  EXPECT_EQ(launched.exits[0].kind, RankExit::Kind::kTimedOut);
}

TEST_F(Launching, SaysWhatCannotBeStarted) {
  Launch start;
  start.folder = folder_.path();
  start.programs = {{{"/nowhere"}, own_environment(), 0, ""}};
  try {
    launch(start);
    FAIL() << "started";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("/nowhere cannot be started: No such file"));
  }
}

TEST_F(Launching, KeepsBothEndsOfALongOutput) {
  run({"echo first; head -c 5000000 /dev/zero | tr '\\0' x; echo; echo last"});
  const std::string log = content_of(folder_.path() / "rank-00000.log");
  EXPECT_LT(log.size(), 2'200'000u);
  EXPECT_TRUE(log.starts_with("first\nxxx"));
  EXPECT_THAT(log, HasSubstr("bytes omitted here"));
  EXPECT_TRUE(log.ends_with("x\nlast\n"));
  EXPECT_GT(heard_.str().size(), 5'000'000u);
}

// `audience` hears pieces of several speakers, each by a number.
std::string heard(const std::vector<std::pair<int, std::string>>& pieces) {
  static const int speakers[3] = {};
  std::ostringstream out;
  Audience audience(&out);
  for (const auto& [who, text] : pieces)
    audience.hear(&speakers[who], "[" + std::to_string(who) + "] ", text);
  audience.end_line();
  return out.str();
}

TEST(AnAudience, HearsWholeLinesWithTheirPrefix) {
  EXPECT_EQ(heard({{0, "a\nb\n"}, {1, "c\n"}}), "[0] a\n[0] b\n[1] c\n");
  EXPECT_EQ(heard({{0, "a\r\nb\r\n"}}), "[0] a\r\n[0] b\r\n");
}

TEST(AnAudience, NeverHearsTwoInOneLine) {
  EXPECT_EQ(heard({{0, "a"}, {1, "b\n"}, {0, "c\n"}}), "[0] a\n[1] b\n[0] c\n");
  EXPECT_EQ(heard({{0, "a"}, {0, "b\n"}}), "[0] ab\n");
  EXPECT_EQ(heard({{0, "10%\r"}, {1, "20%\r"}, {1, "30%\r"}}), "[0] 10%\r\n[1] 20%\r[1] 30%\r\n");
}

TEST(ProcessTable, TakesAFileThatOpensButCannotBeReadAsEmpty) {
  EXPECT_EQ(content_if_readable(std::filesystem::temp_directory_path()), "");
  EXPECT_EQ(content_if_readable("/nowhere"), "");
}

TEST(ProcessTable, KnowsDescendantsAndTheirEnds) {
  const pid_t child = fork();
  if (child == 0) {
    std::this_thread::sleep_for(milliseconds(100));
    _exit(3);
  }
  EXPECT_THAT(descendants_of(getpid()), ElementsAre(child));
  EndWatch watch(child);
  EXPECT_TRUE(watch.running());
  while (watch.running()) std::this_thread::sleep_for(milliseconds(1));
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(watch.status());
  EXPECT_EQ(*watch.status(), status);
  EXPECT_FALSE(look_at_process(child));
}

TEST(ProcessTable, FindsWhoInheritedASetting) {
  const std::string value = "of-" + std::to_string(getpid());
  const pid_t child = fork();
  if (child == 0) {
    const std::string setting = "DDP_DOCTOR_TEST=" + value;
    char* const argv[] = {const_cast<char*>("sleep"), const_cast<char*>("60"), nullptr};
    char* const envp[] = {const_cast<char*>(setting.c_str()), nullptr};
    execve("/bin/sleep", argv, envp);
    _exit(127);
  }
  std::vector<pid_t> found;
  for (int i = 0; i < 500 && found.empty(); ++i) {
    std::this_thread::sleep_for(milliseconds(10));
    found = processes_with("DDP_DOCTOR_TEST=" + value);
  }
  EXPECT_THAT(found, ElementsAre(child));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST(FreePort, IsOutsideTheRangeOfOutgoingConnections) {
  int first = 0, last = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first >> last;
  const int port = free_port();
  EXPECT_GT(port, 1024);
  if (first > 12'000) {
    EXPECT_TRUE(port < first || port > last);
  }
}

}  // namespace
}  // namespace ddp_doctor
