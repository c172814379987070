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

}  // namespace
}  // namespace ddp_doctor
