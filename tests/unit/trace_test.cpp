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

}  // namespace
}  // namespace ddp_doctor
