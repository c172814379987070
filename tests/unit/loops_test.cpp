// SPDX-License-Identifier: BSD-3-Clause
#include "lib/diagnose/loops.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/temporary_folder.h"

namespace ddp_doctor {
namespace {

const std::vector<std::string> kSource = {
    /* 1 */ "def fit(self):",
    /* 2 */ "    for epoch in range(2):",
    /* 3 */ "        for x in loader:",
    /* 4 */ "            loss = model(x)",
    /* 5 */ "# a comment at the margin",
    /* 6 */ "            if rank == 0:",
    /* 7 */ "                dist.all_reduce(total)",
    /* 8 */ "",
    /* 9 */ "        dist.barrier()",
    /* 10 */ "    dist.barrier()",
};

TEST(Loops, EndWhereTheIndentationDoes) {
  EXPECT_EQ(in_loop_of(kSource, 4, 7), true);
  EXPECT_EQ(in_loop_of(kSource, 7, 4), true);
  EXPECT_EQ(in_loop_of(kSource, 4, 9), false) << "of the inner loop";
  EXPECT_EQ(in_loop_of(kSource, 4, 10), false);
  EXPECT_EQ(in_loop_of(kSource, 9, 4), true);
  EXPECT_EQ(in_loop_of(kSource, 4, 1), false);
}

TEST(Loops, AreNotGuessed) {
  EXPECT_FALSE(in_loop_of(kSource, 10, 4));
  EXPECT_FALSE(in_loop_of(kSource, 40, 4));
  EXPECT_FALSE(in_loop_of(kSource, 4, 0));
  EXPECT_FALSE(in_loop_of(std::vector<std::string>{}, 1, 1));
}

TEST(Loops, AreThoseOfTheFunctionInWhichTheStacksPart) {
  TemporaryFolder folder;
  const std::string file = (folder.path() / "train.py").string();
  std::ofstream out(file);
  for (const auto& line : kSource) out << line << '\n';
  out.close();
  const Frame main{file, 30, "<module>"};
  const std::vector<Frame> training = {
      {"/x/site-packages/torch/t.py", 1, "backward"}, {file, 4, "fit"}, main};
  const auto at = [&](int line) {
    return std::vector<Frame>{{file, 99, "save"}, {file, line, "fit"}, main};
  };
  EXPECT_EQ(in_loop_of(training, at(7)), true);
  EXPECT_EQ(in_loop_of(training, at(10)), false);
  EXPECT_FALSE(in_loop_of(training, {{file, 31, "evaluate"}, main}));
  EXPECT_FALSE(in_loop_of(training, {}));
}

const std::vector<std::string> kCaller = {
    /* 1 */ "def train(loader):",
    /* 2 */ "    for x in loader:",
    /* 3 */ "        model(x).backward()",
    /* 4 */ "",
    /* 5 */ "def log(total):",
    /* 6 */ "    dist.all_reduce(total)",
    /* 7 */ "",
    /* 8 */ "def main():",
    /* 9 */ "    for epoch in range(2):",
    /* 10 */ "        if is_main_process():",
    /* 11 */ "            dist.broadcast(total, 0)",
    /* 12 */ "        loss = train(loader)",
    /* 13 */ "        dist.all_reduce(total)",
};

TEST(Loops, OfOneSourceTellWhoIsForSomeRanks) {
  EXPECT_EQ(for_some_ranks(kSource, 4, 7), true) << "a condition on the rank";
  EXPECT_EQ(for_some_ranks(kSource, 4, 10), false);
  EXPECT_EQ(for_some_ranks(kCaller, 3, 11), true);
  EXPECT_EQ(for_some_ranks(kCaller, 3, 13), false) << "after the call that trains";
  EXPECT_FALSE(for_some_ranks(kCaller, 3, 6)) << "called from anywhere";
  for (const char* everybody : {"remaining > 2", "args.local_rank != -1", "rank is not None"}) {
    auto other = kCaller;
    other[9] = std::string("        if ") + everybody + ":";
    EXPECT_NE(for_some_ranks(other, 3, 11), true) << everybody;
  }
  EXPECT_FALSE(for_some_ranks(kCaller, 30, 13));
  auto script = kCaller;  // that trains outside of any function
  script.insert(script.end(), {"for x in loader:", "    model(x).backward()"});
  EXPECT_FALSE(for_some_ranks(script, 15, 6));
}

TEST(Loops, OfStacksToo) {
  TemporaryFolder folder;
  const std::string file = (folder.path() / "train.py").string();
  std::ofstream out(file);
  for (const auto& line : kCaller) out << line << '\n';
  out.close();
  const std::vector<Frame> training = {{file, 3, "train"}, {file, 12, "main"}};
  const std::vector<Frame> after = {{file, 13, "main"}};
  const std::vector<Frame> alone = {{file, 11, "main"}};
  EXPECT_TRUE(returned_from_loop_of(training, after));
  EXPECT_FALSE(returned_from_loop_of(training, alone));
  EXPECT_TRUE(under_rank_condition(training, alone));
  EXPECT_FALSE(under_rank_condition(training, after));
  EXPECT_FALSE(under_rank_condition(training, {}));
}

}  // namespace
}  // namespace ddp_doctor
