// SPDX-License-Identifier: BSD-3-Clause
#include "lib/timeline/fingerprint.h"

#include <gtest/gtest.h>

#include "tests/unit/run_builder.h"

namespace ddp_doctor {
namespace {

RunBuilder run() { return RunBuilder(2, {"a", "b"}, 4); }

TEST(Fingerprint, OfEqualRunsNeverParts) {
  const auto seen = Fingerprint::compare(Fingerprint(run().build()), Fingerprint(run().build()));
  EXPECT_FALSE(seen.parting);
  EXPECT_EQ(seen.steps, 4u);
  EXPECT_EQ(seen.parameters, 2u);
}

TEST(Fingerprint, NamesTheFirstStepStageParameterAndRank) {
  RunBuilder other = run();
  other.differ(1, 1, Stage::kWeight, 2).differ(1, 0, Stage::kGradient, 3);
  const auto seen = Fingerprint::compare(Fingerprint(run().build()), Fingerprint(other.build()));
  ASSERT_TRUE(seen.parting);
  EXPECT_EQ(seen.parting->step, 2);
  EXPECT_EQ(seen.parting->stage, Stage::kWeight);
  EXPECT_EQ(seen.parting->parameter, "b");
  EXPECT_EQ(seen.parting->rank, 1);
}

TEST(Fingerprint, LooksAtGradientsBeforeTheWeightsThatComeOfThem) {
  RunBuilder other = run();
  other.differ(0, 0, Stage::kWeight, 3).differ(0, 1, Stage::kGradient, 3);
  const auto seen = Fingerprint::compare(Fingerprint(run().build()), Fingerprint(other.build()));
  ASSERT_TRUE(seen.parting);
  EXPECT_EQ(seen.parting->stage, Stage::kGradient);
  EXPECT_EQ(seen.parting->parameter, "b");
}

TEST(Fingerprint, ComparesOnlyWhatBothHave) {
  RunBuilder longer(2, {"a", "c"}, 7);
  const auto seen = Fingerprint::compare(Fingerprint(run().build()), Fingerprint(longer.build()));
  EXPECT_EQ(seen.steps, 4u);
  EXPECT_EQ(seen.parameters, 1u);
}

}  // namespace
}  // namespace ddp_doctor
