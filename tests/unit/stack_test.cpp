// SPDX-License-Identifier: BSD-3-Clause
#include "lib/timeline/stack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddp_doctor {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

constexpr char kText[] = R"(Thread 0x00007f7fc5b (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait
  File "/home/u/prefetch.py", line 7 in worker

Current thread 0x00007f80a1 (most recent call first):
  File "/venv/lib/python3.11/site-packages/torch/distributed/c10d.py", line 2055 in all_reduce
  File "/home/u/train.py", line 31 in average
  File "<string>", line 1 in wrapper
  File "/home/u/train.py", line 60 in <module>
)";

TEST(Stack, IsThatOfTheMainThreadInnermostFirst) {
  const auto frames = main_thread(kText);
  ASSERT_THAT(frames, SizeIs(4));
  EXPECT_EQ(frames[0].function, "all_reduce");
  EXPECT_EQ(frames[1].file, "/home/u/train.py");
  EXPECT_EQ(frames[1].line, 31);
  EXPECT_FALSE(frames[0].of_the_user());
  EXPECT_TRUE(frames[1].of_the_user());
  EXPECT_FALSE(frames[2].of_the_user());
}

TEST(NativeStack, IsThatOfTheFirstThread) {
  const auto functions = native_functions(R"(PID 7 - process
TID 7:
#0  0x00007f76 epoll_wait
#1  0x00007f77 gloo::transport::tcp::Buffer::waitRecv()
#2  main (argc=<optimized out>) at main.cpp:3
#3  0x00007f78 in c10d::ProcessGroupGloo::barrier (this=0x1) at ProcessGroupGloo.cpp:9
TID 8:
#0  0x00007f79 futex_wait
)");
  EXPECT_EQ(functions,
            (std::vector<std::string>{"epoll_wait", "gloo::transport::tcp::Buffer::waitRecv()",
                                      "main", "c10d::ProcessGroupGloo::barrier"}));
}

TEST(Stack, IsEmptyOfWhatIsNone) {
  EXPECT_THAT(main_thread(""), IsEmpty());
  EXPECT_THAT(main_thread("  File \"a.py\", line 3 in f\n"), IsEmpty()) << "of no thread";
  EXPECT_THAT(main_thread("Thread 0x1 (most recent call first):\n  File \"a.py\", line x in f\n"),
              IsEmpty());
  EXPECT_THAT(read_stack("/nowhere/rank-00000.stack"), IsEmpty());
}

}  // namespace
}  // namespace ddp_doctor
