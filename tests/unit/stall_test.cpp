// SPDX-License-Identifier: BSD-3-Clause
#include "tool/watch/stall.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "lib/record/call_log.h"
#include "lib/record/writer.h"
#include "tests/temporary_folder.h"

namespace ddp_doctor {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

class Child {
 public:
  explicit Child(bool busy) : pid_(fork()) {
    if (pid_ != 0) return;
    for (;;) {
      if (!busy) pause();
    }
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

class StallTest : public testing::Test {
 protected:
  // A call of that rank that has begun and not ended; of an all_reduce unless said otherwise.
  std::int64_t call(int rank, const std::string& op = "all_reduce", std::int64_t position = 1) {
    auto& log = logs_.try_emplace(rank, calls_file(folder_.path(), rank)).first->second;
    LoggedCall call;
    call.op = op;
    call.position = position;
    return log.begin(call);
  }
  void end(int rank, std::int64_t number) { logs_.at(rank).end(number); }

  // What is reported after some looks, more than a second apart.
  std::optional<std::string> reported(const StallJudge::Ranks& ranks, bool complete = true) {
    std::optional<std::string> why;
    for (int look = 0; look < 12 && !why; ++look) {
      why = judge_.why_end(ranks, complete, StallJudge::Clock::now(), true);
      std::this_thread::sleep_for(100ms);
    }
    return why;
  }

  // A fresh process runs for a moment; on a busy machine, later.
  std::string said_sometime(const StallJudge::Ranks& ranks, bool complete = true) {
    for (int look = 0; look < 200; ++look) {
      if (const auto why = judge_.why_end(ranks, complete, StallJudge::Clock::now(), true))
        return *why;
      std::this_thread::sleep_for(50ms);
    }
    return "nothing";
  }

  void allow_idle(std::chrono::seconds limit) {
    judge_ = StallJudge(folder_.path(), {.deadlocked = 1s, .idle = limit});
  }

  const Child waiting_{false};
  const Child waiting_too_{false};

  TemporaryFolder folder_;

 private:
  std::map<int, CallLog> logs_;
  StallJudge judge_{folder_.path(), {.deadlocked = 1s}};
};

constexpr char kDeadlock[] = "every rank waited for another";

TEST_F(StallTest, IsADeadlockWhereEveryRankWaitsInACollective) {
  call(0);
  call(1, "barrier");
  EXPECT_THAT(said_sometime({{0, waiting_.pid()}, {1, waiting_too_.pid()}}), HasSubstr(kDeadlock));
}

TEST_F(StallTest, IsADeadlockWhereTheOthersHaveEnded) {
  call(1, "ddp.backward");
  EXPECT_THAT(said_sometime({{0, std::nullopt}, {1, waiting_.pid()}}), HasSubstr(kDeadlock));
}

TEST_F(StallTest, IsNoDeadlockWhereARankIsOnAnotherMachine) {
  call(0);
  EXPECT_EQ(reported({{0, waiting_.pid()}}, false), std::nullopt);
}

TEST_F(StallTest, IsNoneWhereARankIsInNoCollectiveForAWhile) {
  call(0);
  end(1, call(1));
  EXPECT_EQ(reported({{0, waiting_.pid()}, {1, waiting_too_.pid()}}), std::nullopt);
}

TEST_F(StallTest, IsOneWhereThatRankDoesNothingForLong) {
  allow_idle(1s);
  call(0);
  end(1, call(1));
  EXPECT_THAT(said_sometime({{0, waiting_.pid()}, {1, waiting_too_.pid()}}),
              HasSubstr("rank 0 waited inside a collective and rank 1 was idle"));
}

TEST_F(StallTest, IsOneWhereThatRankWasStopped) {
  allow_idle(1s);
  call(0);
  call(1);
  kill(waiting_too_.pid(), SIGSTOP);
  EXPECT_THAT(said_sometime({{0, waiting_.pid()}, {1, waiting_too_.pid()}}),
              HasSubstr("rank 1 was idle"));
}

TEST_F(StallTest, IsNotWhereARankRuns) {
  allow_idle(1s);
  const Child busy(true);
  call(0);
  call(1);
  EXPECT_EQ(reported({{0, waiting_.pid()}, {1, busy.pid()}}), std::nullopt);
}

TEST_F(StallTest, IsNotWhereADebuggerHoldsARank) {
  allow_idle(1s);
  call(0);
  call(1);
  ASSERT_EQ(ptrace(PTRACE_SEIZE, waiting_too_.pid(), nullptr, nullptr), 0);
  ASSERT_EQ(ptrace(PTRACE_INTERRUPT, waiting_too_.pid(), nullptr, nullptr), 0);
  waitpid(waiting_too_.pid(), nullptr, 0);
  EXPECT_EQ(reported({{0, waiting_.pid()}, {1, waiting_too_.pid()}}), std::nullopt);
}

TEST_F(StallTest, IsNotInAForwardThatSynchronizesNothing) {
  call(0);
  call(1, "ddp.forward", 0);
  EXPECT_EQ(reported({{0, waiting_.pid()}, {1, waiting_too_.pid()}}), std::nullopt);
}

TEST_F(StallTest, IsNotWhereARankIsStoppedForAWhile) {
  call(0);
  call(1);
  kill(waiting_too_.pid(), SIGSTOP);
  EXPECT_EQ(reported({{0, waiting_.pid()}, {1, waiting_too_.pid()}}), std::nullopt);
}

TEST_F(StallTest, IsNotWhereEverybodyHasEnded) {
  EXPECT_EQ(reported({{0, std::nullopt}, {1, std::nullopt}}), std::nullopt);
}

// Imports may take longer than the user allows a step.
TEST_F(StallTest, IsNotWhereTheProgramComputesBeforeItBegins) {
  const Child busy(true);
  const Timeouts timeouts{.still = 3s, .busy = 3s};
  StallJudge before(folder_.path(), timeouts);
  StallJudge after(folder_.path(), timeouts);
  const auto moved_at = StallJudge::Clock::now();
  std::optional<std::string> ended;
  for (int look = 0; look < 20 && !ended; ++look) {
    EXPECT_EQ(before.why_end({{0, busy.pid()}}, true, moved_at, false), std::nullopt);
    ended = after.why_end({{0, busy.pid()}}, true, moved_at, true);
    std::this_thread::sleep_for(1s);
  }
  EXPECT_EQ(ended, "");
}

TEST_F(StallTest, NeedsLongerWhereTheProgramItselfPausedForLong) {
  StallJudge judge(folder_.path(), {});
  judge.moved_after(10s);
  EXPECT_EQ(judge.idle_limit(), 200s);
}

}  // namespace
}  // namespace ddp_doctor
