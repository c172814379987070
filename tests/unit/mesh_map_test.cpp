// SPDX-License-Identifier: BSD-3-Clause
// The map of a mesh in reports.

#include "lib/report/value/mesh_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "lib/report/compare/make_report.h"
#include "lib/report/merge/read_json.h"
#include "lib/report/render/render.h"
#include "tests/unit/synchronized_runs.h"

namespace ddp_doctor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// Four ranks: the body's parts are shards along tp, the head is stated to be replicated, and is not
// reduced over tp.
RunBuilder on_mesh() {
  RunBuilder run(4, {"body.weight", "head.weight"}, 4);
  run.tensors([](int, TensorInfo& tensor) { tensor.ddp_index.reset(); });
  for (int rank = 0; rank < 4; ++rank) {
    run.fact(rank, 1, "mesh", "0", R"({"mesh": [[0, 1], [2, 3]], "dimensions": ["dp", "tp"]})");
    run.fact(
        rank, 1, "placement", "body.weight",
        R"json({"source": "DTensor", "mesh": 0, "placements": ["Replicate", "Shard(0)"]})json");
    run.fact(rank, 1, "stated placement", "head.weight",
             R"([{"dimension": "tp", "kind": "replicate"}])");
    if (rank % 2 == 0) continue;
    for (const auto stage : {Stage::kWeight, Stage::kWeightBefore, Stage::kGradient})
      run.observe(rank, 0, stage, 500, 0);
    run.observe(rank, 1, Stage::kGradient, 600).observe(rank, 1, Stage::kWeight, 700);
  }
  return run;
}

Report report_of(RunBuilder run) { return make_report({report_run(run.build(), 0)}); }

template <class Render>
std::string rendered(const Report& report, const Render& render) {
  std::ostringstream out;
  render(report, RenderOptions{}, out);
  return out.str();
}

TEST(MeshMap, CountsTheParametersThatLieAlike) {
  const MeshMap map = mesh_map_of(on_mesh().build());
  ASSERT_EQ(map.dimensions.size(), 2u);
  EXPECT_EQ(map.dimensions[1].name, "tp");
  ASSERT_EQ(map.placements.size(), 2u);
  EXPECT_THAT(map.placements[0].along, ElementsAre("Replicate", "Shard(0)"));
  EXPECT_EQ(map.placements[0].source, "DTensor");
  EXPECT_EQ(map.placements[0].replicas, (std::vector<Ranks>{{0, 2}, {1, 3}}));
  EXPECT_THAT(map.placements[1].along, ElementsAre("Replicate", "Replicate"));
  EXPECT_EQ(map.placements[1].source, "stated");
  EXPECT_THAT(map.placements[1].parameters, ElementsAre("head.weight"));
}

TEST(MeshMap, StandsInEveryReport) {
  const Report report = report_of(on_mesh());
  const std::string text = rendered(report, render_text);
  EXPECT_THAT(text, HasSubstr("\nMesh of ranks: dp {0, 2}, {1, 3}; tp {0, 1}, {2, 3}\n"));
  EXPECT_THAT(text,
              HasSubstr("1 | body.weight | Replicate |  Shard(0) | DTensor |    {0, 2}, {1, 3}\n"));
  EXPECT_THAT(text,
              HasSubstr("1 | head.weight | Replicate | Replicate |  stated |      {0, 1, 2, 3}\n"));
  EXPECT_THAT(text, HasSubstr("| along dp | along tp\n"));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  EXPECT_THAT(rendered(report, render_html), HasSubstr("Mesh of ranks: dp {0, 2}, {1, 3}; tp"));
  EXPECT_THAT(rendered(report, render_markdown), HasSubstr("**Mesh of ranks: dp"));
}

TEST(MeshMap, IsReadBackFromJson) {
  const std::string json =
      rendered(report_of(on_mesh()), [](const auto& report, const auto& options, auto& out) {
        render_json(report, options, out);
      });
  const auto run = read_report(json, "report.json").runs.front();
  ASSERT_EQ(run.mesh.placements.size(), 2u);
  EXPECT_EQ(run.mesh.dimensions[0].groups, (std::vector<Ranks>{{0, 2}, {1, 3}}));
  EXPECT_EQ(run.mesh.placements[1].replicas, (std::vector<Ranks>{{0, 1, 2, 3}}));
  EXPECT_EQ(run.steps_table.front().drift_along.size(), 2u);
  EXPECT_EQ(run.steps_table.front().drift_along[0], 0.0);
  EXPECT_FALSE(run.steps_table.front().drift_along[1]) << "no values were kept";
}

TEST(MeshMap, IsEmptyInPlainDataParallelism) {
  EXPECT_TRUE(mesh_map_of(healthy(4).build()).empty());
  const Report report = report_of(healthy(4));
  EXPECT_THAT(rendered(report, render_text), Not(HasSubstr("Mesh")));
  EXPECT_THAT(rendered(report, render_json), Not(HasSubstr("\"mesh\"")));
  EXPECT_THAT(rendered(report, render_json), Not(HasSubstr("drift_along")));
}

TEST(MeshMap, OfManyRanksStaysNarrow) {
  std::vector<Ranks> groups;
  for (int first = 0; first < 1024; first += 8) {
    groups.emplace_back();
    for (int rank = first; rank < first + 8; ++rank) groups.back().push_back(rank);
  }
  EXPECT_EQ(some_groups(groups), "{0-7}, {8-15}, ... (128 groups)");
  EXPECT_EQ(some_groups({{0, 2}, {1, 3}}), "{0, 2}, {1, 3}");
}

}  // namespace
}  // namespace ddp_doctor
