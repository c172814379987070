// SPDX-License-Identifier: BSD-3-Clause
// Reports of some ranks each, merged.
#include "lib/report/merge/merge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "lib/error.h"
#include "lib/report/compare/make_report.h"
#include "lib/report/merge/read_json.h"
#include "lib/report/render/render.h"
#include "lib/report/value/verdict.h"
#include "tests/unit/run_builder.h"

namespace ddp_doctor {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

std::string json_of(const Report& report) {
  std::ostringstream out;
  render_json(report, {}, out);
  return out.str();
}

std::string text_of(const Report& report) {
  std::ostringstream out;
  render_text(report, {}, out);
  return out.str();
}

RunBuilder job(int world_size, int steps = 6) {
  RunBuilder run(world_size, {"body.weight", "head.weight"}, steps);
  run.info().program = "train.py";
  run.wrapper({});
  for (int rank = 0; rank < world_size; ++rank) {
    run.info().exits.push_back({rank, RankExit::Kind::kExited, 0, 0, 0, "", ""});
    for (auto& step : run.record(rank).steps) step.duration_ns = 1'000'000 + 1000 * rank;
  }
  return run;
}

// As it comes from the machine with these ranks.
NamedReport node(const RunBuilder& run, int first, int last) {
  const Report report = make_report({report_run(run.build_part(first, last), 0)});
  const std::string name = "node-" + std::to_string(first) + ".json";
  return {name, read_report(json_of(report), name)};
}

std::vector<NamedReport> nodes(const RunBuilder& run, int ranks, int ranks_per_node) {
  std::vector<NamedReport> reports;
  for (int first = 0; first < ranks; first += ranks_per_node)
    reports.push_back(node(run, first, first + ranks_per_node - 1));
  return reports;
}

Report again(const Report& report) { return read_report(json_of(report), "merged.json"); }

std::string error_of(std::vector<NamedReport> reports) {
  try {
    merge(std::move(reports));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string refusal_of(const std::string& text) {
  try {
    read_report(text, "node.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(PartOfARun, IsNeitherHealthyNorSickWhereNothingWasFound) {
  const Report report = node(job(16), 8, 15).report;
  EXPECT_EQ(report.health(), Health::kInconclusive);
  EXPECT_EQ(verdict_of(report),
            "inconclusive: nothing found on ranks 8, 9, 10, 11, 12, 13, 14 and 15 of 16, and the "
            "others are not in this report");
  EXPECT_THAT(report.runs.front().notes, ElementsAre(StartsWith("ranks 0, 1, 2, 3, 4, 5, 6 and 7 "
                                                                "were not seen here")));
  EXPECT_THAT(report.findings, IsEmpty());
  EXPECT_THAT(report.runs.front().diagnosis.checked, Contains("DDP301"));
  EXPECT_EQ(report.runs.front().steps_table.at(0).loss.size(), 8u);
}

TEST(PartOfARun, IsSickWhereItsOwnRanksPart) {
  RunBuilder run = job(16);
  run.differ(9, 1, Stage::kWeight, 4);
  const Report report = node(run, 8, 15).report;
  EXPECT_EQ(report.health(), Health::kSick);
  ASSERT_THAT(codes_of(report.findings), ElementsAre("DDP301"));
  EXPECT_EQ(report.findings[0].first_step, 4);
  EXPECT_THAT(names_of(report.findings[0]), ElementsAre("head.weight"));
}

// Rules about all ranks are not decided from some of them.
TEST(PartOfARun, LeavesWhatOnlyAllRanksTell) {
  RunBuilder run = job(16);
  run.wrapper({{"find_unused_parameters", "1"}});
  const Report report = node(run, 0, 7).report;
  EXPECT_THAT(report.findings, IsEmpty());  // advice on the whole run: DDP204
  EXPECT_THAT(json_of(report), HasSubstr("it needs the records of all ranks together"));
}

TEST(PartOfARun, DoesNotSayThatItsUnusedParametersAreUnusedEverywhere) {
  RunBuilder run = job(4);
  run.unused(0, 0).unused(1, 0);
  const Report report = node(run, 0, 1).report;
  ASSERT_THAT(codes_of(report.findings), Contains("DDP201"));
  EXPECT_EQ(report.findings[0].certainty, Certainty::kLikely);
}

TEST(ReportAgain, IsTheReportThatWasWritten) {
  RunBuilder sick = job(4);
  sick.differ(1, 1, Stage::kGradient, 3).unused(0, 0).unused(1, 0);
  sick.step(2, 3).loss = std::nan("");
  sick.raise(3, 5, "ValueError: no more data");
  sick.info().exits[3].code = 1;
  for (const auto& run : {job(4), sick}) {
    RunBuilder copy = run;
    const Report report = make_report({report_run(copy.build(), 0)});
    EXPECT_EQ(json_of(again(report)), json_of(report));
    EXPECT_EQ(text_of(again(report)), text_of(report));
  }
}

TEST(Merge, GivesTheTableOfOneFolder) {
  RunBuilder run = job(16);
  const Report merged = merge(nodes(run, 16, 4));
  EXPECT_EQ(merged.health(), Health::kHealthy);
  EXPECT_EQ(verdict_of(merged), "healthy: 16 ranks x 6 steps, replicas bit-identical");
  EXPECT_THAT(merged.runs.front().notes,
              ElementsAre(StartsWith("ranks of different reports were "
                                     "compared by gradients and weights only")));
  const auto one = nlohmann::json::parse(json_of(make_report({report_run(run.build(), 0)})));
  const auto all = nlohmann::json::parse(json_of(merged));
  for (const char* field : {"steps_table", "roots", "ranks", "exit", "parameters", "outcome"})
    EXPECT_EQ(all["runs"][0][field], one["runs"][0][field]) << field;
}

// Everything that can differ between machines.
RunBuilder troubled_job(int ranks) {
  RunBuilder run = job(ranks);
  run.differ(5, 1, Stage::kWeight, 4);
  for (int rank = ranks / 2; rank < ranks; ++rank) run.observe(rank, 0, Stage::kWeight, 99, 3);
  run.differ(9, 0, Stage::kGradient, 2);
  run.step(3, 2).loss = std::nan("");
  run.raise(ranks - 1, 5, "ValueError: no more data");
  run.info().exits[static_cast<std::size_t>(ranks) - 1].code = 1;
  run.unused(0, 0, 6, 6).unused(1, 0, 6, 6);
  return run;
}

TEST(Merge, DoesNotDependOnOrderNorOnWhatWasMergedFirst) {
  for (const int per_node : {4, 24}) {  // figures by rank, and those of many
    const RunBuilder run = troubled_job(4 * per_node);
    const auto parts = nodes(run, 4 * per_node, per_node);
    const auto& [a, b, c, d] = std::tie(parts[0], parts[1], parts[2], parts[3]);
    const auto pair = [](const NamedReport& one, const NamedReport& other) {
      return NamedReport{"pair", again(merge({one, other}))};
    };
    const std::string flat = json_of(merge({a, b, c, d}));
    EXPECT_EQ(json_of(merge({d, b, a, c})), flat);
    EXPECT_EQ(json_of(merge({pair(a, b), pair(c, d)})), flat);
    EXPECT_EQ(json_of(merge({pair(d, a), pair(c, b)})), flat);
    EXPECT_EQ(json_of(merge({a, pair(b, pair(c, d))})), flat);
    EXPECT_EQ(json_of(merge({pair(pair(c, a), b), d})), flat);
    const Report merged = merge({a, b, c, d});
    EXPECT_EQ(merged.health(), Health::kSick);
    EXPECT_EQ(json_of(again(merged)), json_of(merged));
    EXPECT_EQ(merged.runs.front().steps_table.at(0).many.has_value(), per_node == 24);
  }
}

TEST(Merge, UnitesWhatTheReportsSayAlike) {
  RunBuilder run = job(6);
  run.differ(1, 0, Stage::kWeight, 4).differ(3, 0, Stage::kWeight, 2);
  run.differ(5, 1, Stage::kWeight, 6);
  const Report merged = merge(nodes(run, 6, 2));
  ASSERT_THAT(codes_of(merged.findings), ElementsAre("DDP301"));
  EXPECT_THAT(merged.findings[0].ranks, ElementsAre(3));  // in step 2, when it began
  const auto& below = merged.findings[0].consequences;
  ASSERT_THAT(codes_of(below), ElementsAre("DDP301", "DDP301"));
  EXPECT_THAT(names_of(below[0]), ElementsAre("body.weight"));
  EXPECT_THAT(below[0].ranks, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(below[0].first_step, 2);
  EXPECT_EQ(below[0].evidence["steps_apart"], 5);  // as the earlier one has it
  EXPECT_THAT(names_of(below[1]), ElementsAre("head.weight"));
  EXPECT_THAT(below[1].ranks, ElementsAre(4, 5));
}

TEST(Merge, KeepsConsequencesBelowTheirCause) {
  RunBuilder run = job(4);
  run.each_step([](int rank, StepRecord& step) {
    if (rank != 1 || step.step < 3) return;
    step.forwards_through_wrapper = 0;
    step.forwards_around_wrapper = 1;
  });
  run.differ(1, 0, Stage::kGradient, 3).differ(1, 0, Stage::kWeight, 3);
  const Report merged = merge(nodes(run, 4, 2));
  ASSERT_THAT(codes_of(merged.findings), ElementsAre("DDP101"));
  EXPECT_THAT(merged.findings[0].ranks, ElementsAre(1));
  EXPECT_THAT(codes_of(merged.findings[0].consequences), Contains("DDP301").Times(2));
}

TEST(Merge, IsCertainOfUnusedParametersWhereAllRanksLeaveThem) {
  RunBuilder run = job(4);
  for (int rank = 0; rank < 4; ++rank) run.unused(rank, 0);
  const auto parts = nodes(run, 4, 2);
  EXPECT_EQ(parts[0].report.findings.at(0).certainty, Certainty::kLikely);
  const Report merged = merge(parts);
  ASSERT_THAT(codes_of(merged.findings), ElementsAre("DDP201"));
  EXPECT_EQ(merged.findings[0].certainty, Certainty::kCertain);
  EXPECT_EQ(merged.findings[0].ranks.size(), 4u);
}

TEST(Merge, HangsWhatOthersSawOnTheRankThatFell) {
  RunBuilder run = job(4);
  for (int rank = 0; rank < 4; ++rank) {
    run.raise(rank, 5, rank == 2 ? "ValueError: no more data" : "Connection reset by peer",
              rank == 2 ? 1 : 2);
    run.info().exits[static_cast<std::size_t>(rank)].code = 1;
  }
  const Report merged = merge(nodes(run, 4, 2));
  ASSERT_THAT(codes_of(merged.findings), ElementsAre("DDP504"));
  EXPECT_THAT(merged.findings[0].ranks, ElementsAre(2));
  EXPECT_THAT(merged.runs.front().outcome, StartsWith("raised in step 5"));
}

TEST(Merge, SaysThatReplicasBeganApart) {
  RunBuilder run = job(4);
  for (int rank : {2, 3}) {
    auto& start = run.record(rank).steps.at(0);
    start.observations.at(0).digest = digest_of(77);
    run.observe(rank, 0, Stage::kWeight, 78);
  }
  const Report merged = merge(nodes(run, 4, 2));
  ASSERT_THAT(codes_of(merged.findings), ElementsAre("DDP302"));
  EXPECT_THAT(codes_of(merged.findings[0].consequences), ElementsAre("DDP301"));
}

TEST(Merge, GivesABracketWhereStepsInBetweenWereNotExamined) {
  RunBuilder run = job(4, 8);
  for (int rank = 0; rank < 4; ++rank) {
    for (auto& step : run.record(rank).steps) {
      if (step.step < 3 || step.step > 6) continue;
      step.examined = false;
      step.observations.clear();
      step.usages.clear();
    }
  }
  for (int rank : {2, 3}) run.observe(rank, 0, Stage::kWeight, 99, 7);
  const Report merged = merge(nodes(run, 4, 2));
  ASSERT_THAT(codes_of(merged.findings), ElementsAre("DDP301"));
  EXPECT_THAT(merged.findings[0].message,
              HasSubstr("From step 7 on (still equal in step 2, the last one examined before)"));
}

TEST(Merge, DecidesByRootsWhatNoReportOfOneRankCould) {
  const Report merged = merge(nodes(job(3), 3, 1));
  EXPECT_EQ(merged.health(), Health::kHealthy);
  const auto& checked = merged.runs.front().diagnosis.checked;
  for (const char* rule : {"DDP102", "DDP301", "DDP302"}) EXPECT_THAT(checked, Contains(rule));
}

TEST(Merge, DoesNotCompareRanksOfDifferentModels) {
  RunBuilder run = job(4);
  run.tensors([](int rank, TensorInfo& tensor) {
    if (rank > 1 && tensor.id == 1) tensor.sizes = {2};
  });
  const Report merged = merge(nodes(run, 4, 2));
  EXPECT_THAT(merged.findings, IsEmpty());
  EXPECT_EQ(merged.health(), Health::kInconclusive);
  EXPECT_THAT(verdict_of(merged), HasSubstr("different models"));
  EXPECT_THAT(json_of(merged), HasSubstr("were not compared with each other"));
}

TEST(Merge, DoesNotJudgeRanksThatComeTogetherAgain) {
  RunBuilder run = job(4);
  for (int rank : {2, 3}) {
    for (const auto stage : {Stage::kWeight, Stage::kGradient})
      run.observe(rank, 0, stage, 99, 1, 2);
  }
  const Report merged = merge(nodes(run, 4, 2));
  EXPECT_THAT(merged.findings, IsEmpty());
  EXPECT_EQ(merged.health(), Health::kInconclusive);
  EXPECT_THAT(verdict_of(merged), HasSubstr("may differ on purpose"));
}

// The body's parts are shards along tp, with replicas along dp; nobody says how the head lies.
RunBuilder job_on_mesh() {
  RunBuilder run = job(4);
  run.tensors([](int, TensorInfo& tensor) { tensor.ddp_index.reset(); });
  for (int rank = 0; rank < 4; ++rank) {
    run.fact(rank, 1, "mesh", "0", R"({"mesh": [[0, 1], [2, 3]], "dimensions": ["dp", "tp"]})");
    run.fact(
        rank, 1, "placement", "body.weight",
        R"json({"source": "DTensor", "mesh": 0, "placements": ["Replicate", "Shard(0)"]})json");
    if (rank % 2 == 0) continue;
    for (const auto stage : {Stage::kWeight, Stage::kWeightBefore, Stage::kGradient})
      run.observe(rank, 0, stage, 500, 0);
  }
  return run;
}

TEST(MergeOnMesh, ComparesWhatIsDeclaredToBeReplicated) {
  for (const int ranks_per_node : {1, 2}) {
    RunBuilder run = job_on_mesh();
    const Report healthy = merge(nodes(run, 4, ranks_per_node));
    EXPECT_THAT(healthy.findings, IsEmpty());
    EXPECT_EQ(healthy.health(), Health::kHealthy) << verdict_of(healthy);
    EXPECT_THAT(healthy.runs.front().diagnosis.checked, Contains("DDP301"));
    run.observe(2, 0, Stage::kWeight, 99, 5);
    const Report merged = again(merge(nodes(run, 4, ranks_per_node)));
    ASSERT_THAT(codes_of(merged.findings), ElementsAre("DDP301"));
    EXPECT_THAT(merged.findings[0].ranks, ElementsAre(0, 2));
  }
}

TEST(MergeOnMesh, DoesNotTakeUndeclaredPartsForReplicas) {
  RunBuilder run = job_on_mesh();
  for (const int rank : {1, 3}) {
    for (const auto stage : {Stage::kWeight, Stage::kWeightBefore, Stage::kGradient})
      run.observe(rank, 1, stage, 600, 0);
    run.observe(rank, 1, Stage::kWeight, 700, 2);
  }
  const Report merged = merge(nodes(run, 4, 1));
  EXPECT_THAT(merged.findings, IsEmpty());
  EXPECT_EQ(merged.health(), Health::kInconclusive);
  EXPECT_THAT(verdict_of(merged), HasSubstr("may differ on purpose"));
  EXPECT_THAT(merged.runs.front().diagnosis.checked, Not(Contains("DDP301")));
}

TEST(MergeOnMesh, CannotTellWhetherMeshesSideBySideHaveReplicas) {
  RunBuilder run = job(4);
  run.tensors([](int, TensorInfo& tensor) { tensor.ddp_index.reset(); });
  for (int rank = 0; rank < 4; ++rank) {
    run.fact(rank, 1, "mesh", "0", rank < 2 ? R"({"mesh": [0, 1]})" : R"({"mesh": [2, 3]})");
    for (int id : {0, 1}) {
      run.fact(rank, 1, "placement", id == 0 ? "body.weight" : "head.weight",
               R"json({"source": "fully_shard", "mesh": 0, "placements": ["Shard(0)"]})json");
      for (const auto stage : {Stage::kWeight, Stage::kWeightBefore, Stage::kGradient})
        run.observe(rank, id, stage, 500 + 10 * rank + id, 0);
      run.observe(rank, id, Stage::kWeight, 700 + 10 * rank + id, 2);  // trained
    }
  }
  const Report merged = merge(nodes(run, 4, 1));
  EXPECT_THAT(merged.findings, IsEmpty());
  EXPECT_EQ(merged.health(), Health::kInconclusive);
  EXPECT_THAT(verdict_of(merged), HasSubstr("may differ on purpose"));
}

TEST(Merge, TakesTheSameCommandOnSeveralMachinesForOneProgram) {
  RunBuilder run = job(4);
  run.info().program = "torchrun --nnodes 2 --node_rank 0 train.py";
  const auto first = node(run, 0, 1);
  run.info().program = "torchrun --nnodes 2 --node_rank 1 train.py";
  EXPECT_EQ(merge({node(run, 2, 3), first}).program, "torchrun --nnodes 2 --node_rank 0 train.py");
}

TEST(Merge, RefusesWhatIsNotOfOneJob) {
  RunBuilder run = job(4);
  EXPECT_THAT(error_of({node(run, 0, 2), node(run, 2, 3)}),
              HasSubstr("node-0.json and node-2.json are both about rank 2; merge the reports of "
                        "one job's machines only"));
  const auto first = node(run, 0, 1);
  EXPECT_THAT(error_of({first, node(job(8), 2, 3)}), HasSubstr("different world sizes (4 and 8)"));
  run.info().program = "other.py";
  EXPECT_THAT(error_of({first, node(run, 2, 3)}),
              HasSubstr("different programs (train.py and other.py)"));
}

TEST(ReportAgain, RefusesWhatIsNone) {
  const std::string json = json_of(node(job(4), 0, 1).report);
  EXPECT_EQ(refusal_of(json), "");
  EXPECT_THAT(refusal_of(json.substr(0, json.size() / 2)),
              HasSubstr("not JSON, or truncated; make"));
  EXPECT_THAT(refusal_of("[1, 2]"), HasSubstr("not a report of ddp-doctor; make it again"));
  EXPECT_THAT(refusal_of("{\"schema_version\": 1}"), HasSubstr("not a report of ddp-doctor"));
  auto other = nlohmann::ordered_json::parse(json);
  other["schema_version"] = 2;
  EXPECT_THAT(refusal_of(other.dump()), HasSubstr("a report of schema 2, this ddp-doctor reads"));
  other = nlohmann::ordered_json::parse(json);
  other["runs"].push_back(other["runs"][0]);
  EXPECT_THAT(refusal_of(other.dump()), HasSubstr("a report of 2 runs"));
  other = nlohmann::ordered_json::parse(json);
  other["runs"][0].erase("roots");
  EXPECT_THAT(refusal_of(other.dump()), HasSubstr("a report of an earlier ddp-doctor"));
  other = nlohmann::ordered_json::parse(json);
  other["runs"][0]["ranks"] = "0-9";
  EXPECT_THAT(refusal_of(other.dump()), HasSubstr("its ranks are \"0-9\" of 4"));
  other = nlohmann::ordered_json::parse(json);
  other["runs"][0].erase("notes");
  EXPECT_THAT(refusal_of(other.dump()), HasSubstr("not a complete report of ddp-doctor"));
}

// ---- 64 machines with 64 ranks each

constexpr int kNodes = 64;
constexpr int kRanks = 64 * kNodes;

// In two levels, as JSON.
Report merge_as_tree(const RunBuilder& run) {
  std::vector<NamedReport> racks;
  const auto machines = nodes(run, kRanks, kRanks / kNodes);
  for (int rack = 0; rack < 8; ++rack) {
    const auto begin = machines.begin() + 8 * rack;
    racks.push_back({"rack", again(merge({begin, begin + 8}))});
  }
  return merge(std::move(racks));
}

TEST(MergeOf4096Ranks, IsHealthyInOneGroupPerStepAndStage) {
  const Report merged = merge_as_tree(job(kRanks));
  EXPECT_EQ(verdict_of(merged), "healthy: 4096 ranks x 6 steps, replicas bit-identical");
  ASSERT_EQ(merged.runs.front().roots.size(), 7u);
  for (const auto& step : merged.runs.front().roots) {
    ASSERT_EQ(step.weight.size(), 1u);
    EXPECT_EQ(step.weight[0].ranks.text(), "0-4095");
    EXPECT_EQ(step.gradient.size(), step.step > 0 ? 1u : 0u);
  }
  EXPECT_LT(json_of(merged).size(), 40'000u);
}

TEST(MergeOf4096Ranks, FindsTheOneThatParts) {
  constexpr int kParting = 37 * 64 + 5;
  RunBuilder run = job(kRanks);
  run.differ(kParting, 1, Stage::kWeight, 5);
  const Report merged = merge_as_tree(run);
  ASSERT_THAT(codes_of(merged.findings), ElementsAre("DDP301"));
  const Finding& finding = merged.findings[0];
  EXPECT_THAT(finding.ranks, ElementsAre(kParting));
  EXPECT_EQ(finding.first_step, 5);
  // What its own machine knows of it.
  ASSERT_THAT(codes_of(finding.consequences), ElementsAre("DDP301"));
  EXPECT_THAT(names_of(finding.consequences[0]), ElementsAre("head.weight"));
  EXPECT_EQ(merged.health(), Health::kSick);
}

TEST(MergeOf4096Ranks, FindsHalvesThatPartAlthoughEachMachineIsHealthy) {
  RunBuilder run = job(kRanks);
  for (int rank = kRanks / 2; rank < kRanks; ++rank) run.observe(rank, 0, Stage::kWeight, 99, 3);
  const Report merged = merge_as_tree(run);
  ASSERT_THAT(codes_of(merged.findings), ElementsAre("DDP301"));
  const Finding& finding = merged.findings[0];
  EXPECT_EQ(finding.first_step, 3);
  EXPECT_EQ(finding.ranks.size(), static_cast<std::size_t>(kRanks));  // unknown which is right
  EXPECT_EQ(finding.evidence["groups"], nlohmann::ordered_json({"0-2047", "2048-4095"}));
  EXPECT_THAT(finding.consequences, IsEmpty());
  EXPECT_THAT(finding.prescription.text, HasSubstr("one with rank 0 and one with rank 2048: "
                                                   "`ddp-doctor report FOLDER-A FOLDER-B`"));
  EXPECT_THAT(text_of(merged), HasSubstr("Verdict: sick: DDP301 weights-drift"));
}

}  // namespace
}  // namespace ddp_doctor
