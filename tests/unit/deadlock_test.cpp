#include "tool/deadlock.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "lib/record/call_log.h"
#include "lib/record/writer.h"
#include "tests/temporary_folder.h"

namespace ddp_doctor {
namespace {

using namespace std::chrono_literals;

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

class DeadlockTest : public testing::Test {
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

  std::chrono::nanoseconds looks(const std::map<int, std::optional<pid_t>>& ranks) {
    std::chrono::nanoseconds lasts{};
    for (int look = 0; look < 4; ++look) {
      lasts = deadlock_.lasts(ranks);
      std::this_thread::sleep_for(100ms);
    }
    return lasts;
  }

  // A fresh process runs for a moment; on a busy machine, later.
  bool lasts_sometime(const std::map<int, std::optional<pid_t>>& ranks) {
    for (int look = 0; look < 200; ++look) {
      if (deadlock_.lasts(ranks) > 100ms) return true;
      std::this_thread::sleep_for(50ms);
    }
    return false;
  }

  const Child waiting_{false};
  const Child waiting_too_{false};

 private:
  TemporaryFolder folder_;
  std::map<int, CallLog> logs_;
  Deadlock deadlock_{folder_.path()};
};

TEST_F(DeadlockTest, IsWhereEveryRankWaitsInACollective) {
  call(0);
  call(1, "barrier");
  EXPECT_TRUE(lasts_sometime({{0, waiting_.pid()}, {1, waiting_too_.pid()}}));
}

TEST_F(DeadlockTest, IsWhereTheOthersHaveEnded) {
  call(1, "ddp.backward");
  EXPECT_TRUE(lasts_sometime({{0, std::nullopt}, {1, waiting_.pid()}}));
}

TEST_F(DeadlockTest, IsNotWhereARankIsInNoCollective) {
  call(0);
  end(1, call(1));
  EXPECT_EQ(looks({{0, waiting_.pid()}, {1, waiting_too_.pid()}}), 0ns);
}

TEST_F(DeadlockTest, IsNotInAForwardThatSynchronizesNothing) {
  call(0);
  call(1, "ddp.forward", 0);
  EXPECT_EQ(looks({{0, waiting_.pid()}, {1, waiting_too_.pid()}}), 0ns);
}

TEST_F(DeadlockTest, IsNotWhereARankRuns) {
  const Child busy(true);
  call(0);
  call(1);
  EXPECT_EQ(looks({{0, waiting_.pid()}, {1, busy.pid()}}), 0ns);
}

TEST_F(DeadlockTest, IsNotWhereARankIsStopped) {
  call(0);
  call(1);
  kill(waiting_too_.pid(), SIGSTOP);
  EXPECT_EQ(looks({{0, waiting_.pid()}, {1, waiting_too_.pid()}}), 0ns);
}

TEST_F(DeadlockTest, IsNotWhereEverybodyHasEnded) {
  EXPECT_EQ(looks({{0, std::nullopt}, {1, std::nullopt}}), 0ns);
}

}  // namespace
}  // namespace ddp_doctor
