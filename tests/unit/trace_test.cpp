// SPDX-License-Identifier: BSD-3-Clause
#include "lib/timeline/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddp_doctor {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

TEST(Trace, IsActionsAndHowOftenEachHappened) {
  EXPECT_THAT(actions_of("F0- B0-*3 F0+ B0+"),
              ElementsAre(Pair("F0-", 1), Pair("B0-", 3), Pair("F0+", 1), Pair("B0+", 1)));
  EXPECT_THAT(actions_of(""), IsEmpty());
}

TEST(Trace, TellsWhichWrappersABackwardReachedAndReduced) {
  EXPECT_EQ(backward_of("B0+", 0), true);
  EXPECT_EQ(backward_of("B0-", 0), false);
  EXPECT_EQ(backward_of("B0-,11+u", 11), true);
  EXPECT_EQ(backward_of("B0+,11+", 1), std::nullopt);
  EXPECT_EQ(backward_of("Bu", 0), std::nullopt);
  EXPECT_EQ(backward_of("F0+", 0), std::nullopt);
}

// ---- which forward a backward belongs to

using Forward = BackwardPass::Forward;

std::vector<std::pair<Forward, bool>> passes(const std::string& trace, int wrapper = 0) {
  std::vector<std::pair<Forward, bool>> passes;
  for (const auto& pass : backwards_of(trace, wrapper))
    passes.emplace_back(pass.forward, pass.reduced);
  return passes;
}

TEST(BackwardsOf, BelongToTheForwardBeforeThem) {
  EXPECT_THAT(passes("F0- B0- F0+ B0+"),
              ElementsAre(std::pair(Forward::kNoSync, false), std::pair(Forward::kThrough, true)));
  EXPECT_THAT(passes("N0 B0-"), ElementsAre(std::pair(Forward::kAround, false)));
  EXPECT_THAT(passes("... B0-"), ElementsAre(std::pair(Forward::kNone, false)));
  EXPECT_THAT(passes(""), IsEmpty());
}

TEST(BackwardsOf, HaveNoForwardOfTheirOwnWhereOneWasUsedUp) {
  EXPECT_THAT(passes("F0+ B0+r B0-"),
              ElementsAre(std::pair(Forward::kThrough, true), std::pair(Forward::kNone, false)));
  EXPECT_THAT(passes("F0+*2 B0+ B0-"),
              ElementsAre(std::pair(Forward::kThrough, true), std::pair(Forward::kNone, false)));
}

TEST(BackwardsOf, StayWithTheWrapperWhereAPartWasCalledBesideIt) {
  EXPECT_THAT(passes("F0+ N0 B0+"), ElementsAre(std::pair(Forward::kThrough, true)));
}

TEST(BackwardsOf, LeaveOutThoseOfOtherWrappers) {
  const std::string trace = "F0+ F1+ B1+ F1+ B0+,1-u F0+ B0+";
  EXPECT_THAT(passes(trace, 0),
              ElementsAre(std::pair(Forward::kThrough, true), std::pair(Forward::kThrough, true)));
  EXPECT_THAT(passes(trace, 1),
              ElementsAre(std::pair(Forward::kThrough, true), std::pair(Forward::kThrough, false)));
  EXPECT_THAT(passes("F11+ B11+", 1), IsEmpty());
}

}  // namespace
}  // namespace ddp_doctor
