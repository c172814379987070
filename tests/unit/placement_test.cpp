// SPDX-License-Identifier: BSD-3-Clause
#include "lib/placement/placement.h"

#include <gtest/gtest.h>

namespace ddp_doctor {
namespace {

const Mesh kMesh{{0, 1, 2, 3}, {2, 2}, {"dp", "tp"}};

TEST(Placement, GroupsAlongEachDimension) {
  EXPECT_EQ(kMesh.along(0), (std::vector<Ranks>{{0, 2}, {1, 3}}));
  EXPECT_EQ(kMesh.along(1), (std::vector<Ranks>{{0, 1}, {2, 3}}));
  EXPECT_EQ(kMesh.name_of(1), "tp");
  EXPECT_EQ((Mesh{{0, 1}, {2}, {}}.name_of(0)), "dimension 0");
}

TEST(Placement, ReplicasShareTheCoordinatesOfWhatIsNotReplicated) {
  const auto on = [](std::vector<std::string> kinds) {
    return Placement{std::move(kinds), kMesh, "DTensor", {}}.replica_groups();
  };
  EXPECT_EQ(on({"Replicate", "Shard(0)"}), (std::vector<Ranks>{{0, 2}, {1, 3}}));
  EXPECT_EQ(on({"Replicate", "Replicate"}), (std::vector<Ranks>{{0, 1, 2, 3}}));
  EXPECT_EQ(on({"Shard(0)", "Shard(1)"}), (std::vector<Ranks>{{0}, {1}, {2}, {3}}));
  EXPECT_EQ(on({"Replicate", "Partial"}), (std::vector<Ranks>{{0, 2}, {1, 3}}));
  EXPECT_EQ(on({"Local", "Replicate"}), (std::vector<Ranks>{{0, 1}, {2, 3}}));
}

TEST(Placement, RanksOfAMeshInAnyOrder) {
  const Placement placement{{"Replicate", "Shard(0)"}, {{3, 1, 2, 0}, {2, 2}, {}}, "DTensor", {}};
  EXPECT_EQ(placement.replica_groups(), (std::vector<Ranks>{{0, 1}, {2, 3}}));
}

TEST(Placement, WithoutAMeshNothingFollows) {
  EXPECT_TRUE((Placement{{"Shard(0)"}, {}, "tensor_model_parallel", {}}.replica_groups().empty()));
}

TEST(Placement, WhatIsKnownOfSomeDimensionsLeavesTheOthersAsTheyWere) {
  const Dimension dp{"dp", kMesh.along(0)};
  const Dimension tp{"tp", kMesh.along(1)};
  const std::vector<Ranks> all{{0, 1, 2, 3}}, alone{{0}, {1}, {2}, {3}}, rows{{0, 2}, {1, 3}};
  EXPECT_EQ(replica_groups({{tp, true}}, all), all);
  EXPECT_EQ(replica_groups({{tp, false}}, all), rows);
  EXPECT_EQ(replica_groups({{tp, true}}, alone), (std::vector<Ranks>{{0, 1}, {2, 3}}));
  EXPECT_EQ(replica_groups({{tp, true}}, rows), all);
  EXPECT_EQ(replica_groups({{tp, false}, {dp, false}}, all), alone);
  EXPECT_EQ(replica_groups({{tp, false}, {dp, true}}, alone), rows);
  EXPECT_EQ(replica_groups({}, rows), rows);
}

TEST(Placement, Partition) {
  EXPECT_TRUE(is_partition({{0, 2}, {1, 3}}, {0, 1, 2, 3}));
  EXPECT_FALSE(is_partition({{0, 2}, {2, 3}}, {0, 2, 3}));
  EXPECT_FALSE(is_partition({{0}}, {0, 1}));
  EXPECT_EQ(in_braces({{0, 2}, {1, 3}}), "{0, 2}, {1, 3}");
}

}  // namespace
}  // namespace ddp_doctor
