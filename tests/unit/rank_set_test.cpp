// SPDX-License-Identifier: BSD-3-Clause
#include "lib/diagnose/rank_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/diagnose/facts.h"
#include "lib/error.h"

namespace ddp_doctor {
namespace {

TEST(RankSet, SaysRangesAndReadsThemAgain) {
  EXPECT_EQ(RankSet({3, 1, 2, 12, 0}).text(), "0-3,12");
  EXPECT_EQ(RankSet().text(), "");
  for (const char* text : {"", "5", "0-7,12", "0-2047,2049,4000-4095"})
    EXPECT_EQ(RankSet::from(text).text(), text);
  for (const char* text : {"a", "1-", "-3", "3-1", "1;2"})
    EXPECT_THROW(RankSet::from(text), Error) << text;
}

TEST(RankSet, AddsIntersectsAndLeavesOut) {
  RankSet ranks = RankSet::from("0-3,8-11");
  ranks.add(RankSet::from("4-7"));
  EXPECT_EQ(ranks.text(), "0-11");
  EXPECT_EQ(ranks.size(), 12u);
  EXPECT_EQ(ranks.without(RankSet::from("0,5-6,11-20")).text(), "1-4,7-10");
  EXPECT_EQ(ranks.common(RankSet::from("10-20")).text(), "10-11");
  EXPECT_TRUE(ranks.common(RankSet::from("12-20")).empty());
  EXPECT_EQ(RankSet::from("2,8-9").at(2), 9);
}

TEST(RankSet, NamesManyRanksInShort) {
  EXPECT_EQ(ranks_of({0, 2}), "ranks 0 and 2");
  EXPECT_EQ(ranks_of(RankSet::from("0-4095").list()), "ranks 0-4095");
}

}  // namespace
}  // namespace ddp_doctor
