// SPDX-License-Identifier: BSD-3-Clause
// Plots: what is drawn of values that do not fit a scale, of none, and of many.
#include "lib/report/plot/plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "lib/report/compare/make_report.h"
#include "lib/report/plot/plots.h"
#include "lib/report/render/render.h"
#include "tests/unit/run_builder.h"

namespace ddp_doctor {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::size_t occurrences(const std::string& text, const std::string& what) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++found;
  return found;
}

// What every drawing keeps: named, and no coordinate that is no number.
void expect_sound(const std::string& svg) {
  EXPECT_THAT(svg, AllOf(HasSubstr("role=\"img\""), HasSubstr("<title id=\"p-title\">"),
                         HasSubstr("<desc id=\"p-description\">")));
  EXPECT_THAT(svg, AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf")), Not(HasSubstr("e+"))));
}

std::string svg_of(const plot::LineChart& chart) {
  return draw(chart, {"p", "title", "description"}).svg;
}

plot::LineChart chart_of(plot::Values values) {
  plot::LineChart chart;
  for (std::size_t i = 0; i < values.size(); ++i) chart.x.push_back(static_cast<int>(i) + 1);
  chart.lines = {{"line", std::move(values)}};
  return chart;
}

TEST(LinePlot, OfNothingIsAnEmptyScale) {
  expect_sound(svg_of({}));
  expect_sound(svg_of(chart_of({{}, {}})));
}

TEST(LinePlot, OfOneStepIsAMarker) {
  const auto svg = svg_of(chart_of({2.0}));
  expect_sound(svg);
  EXPECT_EQ(occurrences(svg, "class=\"mark f0\""), 1u);
}

TEST(LinePlot, PutsWhatIsNotFiniteAboveTheScale) {
  auto chart = chart_of({1.0, std::nan(""), HUGE_VAL, 2.0});
  const auto svg = svg_of(chart);
  expect_sound(svg);
  EXPECT_THAT(svg, HasSubstr("× not finite"));
  EXPECT_EQ(occurrences(svg, "class=\"mark o0\""), 2u);
  EXPECT_THAT(svg_of(chart_of({1.0, 2.0})), Not(HasSubstr("×")));
  chart = chart_of({std::nan("")});
  expect_sound(svg_of(chart));
}

TEST(LinePlot, PutsZerosBelowALogarithmicScale) {
  auto chart = chart_of({0.0, 1e-8, 1e-2});
  chart.logarithmic = true;
  const auto svg = svg_of(chart);
  expect_sound(svg);
  EXPECT_THAT(svg, AllOf(HasSubstr(">0</text>"), HasSubstr(">1e-8</text>")));
  chart = chart_of({0.0, 0.0});
  chart.logarithmic = true;
  expect_sound(svg_of(chart));
  EXPECT_THAT(svg_of(chart), HasSubstr(">0</text>"));
}

TEST(LinePlot, HoldsTheLargestAndTheSmallestNumbers) {
  for (const bool logarithmic : {false, true}) {
    auto chart = chart_of({-1.7e308, 5e-324, 1.7e308});
    chart.logarithmic = logarithmic;
    EXPECT_THAT(svg_of(chart), AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
  }
}

TEST(LinePlot, BreaksALineWhereAValueIsMissing) {
  EXPECT_EQ(occurrences(svg_of(chart_of({1.0, 2.0, {}, 3.0, 4.0})), "class=\"line l0\""), 1u);
  const auto svg = svg_of(chart_of({1.0, {}, 3.0}));
  EXPECT_EQ(occurrences(svg, "class=\"mark f0\""), 2u);  // or nothing would be seen of them
}

TEST(LinePlot, EscapesLabels) {
  plot::LineChart chart = chart_of({1.0});
  chart.y_label = "<&>";
  EXPECT_THAT(svg_of(chart), HasSubstr("&lt;&amp;&gt;"));
}

TEST(OtherPlots, OfNothingAreSound) {
  expect_sound(draw(plot::HeatMap{}, {"p", "", ""}).svg);
  expect_sound(draw(plot::Bars{}, {"p", "", ""}).svg);
  plot::Lanes lanes;
  lanes.knots = {{0.0, 0.0}, {0.0, 1.0}};
  expect_sound(draw(lanes, {"p", "", ""}).svg);
}

TEST(HeatMapPlot, TellsFullPartNoneAndUnknownApart) {
  plot::HeatMap map;
  map.first = map.last = {1, 2, 3, 4};
  map.rows = {{"w", "", {1.0, 0.5, 0.0, {}}}};
  map.full = "all";
  map.part = "some";
  map.none = "none";
  const auto drawing = draw(map, {"p", "", ""});
  expect_sound(drawing.svg);
  std::vector<std::string> labels;
  for (const auto& key : drawing.keys) labels.push_back(key.label);
  EXPECT_THAT(labels, testing::ElementsAre("all", "some", "none", "not known"));
}

TEST(ThinnedLines, KeepTheLeastTheGreatestAndWhatIsNotFinite) {
  std::vector<std::int64_t> x;
  plot::Values y;
  for (int i = 0; i < 1000; ++i) {
    x.push_back(i);
    y.emplace_back(1.0);
  }
  y[123] = 9.0;
  y[456] = -9.0;
  y[789] = std::nan("");
  const auto fewer = thinned(x, {y});
  EXPECT_LE(fewer.x.size(), 330u);
  ASSERT_EQ(fewer.y[0].size(), fewer.x.size());
  const auto has = [&](double value) {
    return std::find(fewer.y[0].begin(), fewer.y[0].end(), value) != fewer.y[0].end();
  };
  EXPECT_TRUE(has(9.0) && has(-9.0));
  EXPECT_TRUE(std::any_of(fewer.y[0].begin(), fewer.y[0].end(),
                          [](const auto& value) { return value && std::isnan(*value); }));
  EXPECT_EQ(thinned({1, 2}, {{1.0, 2.0}}).steps, 1u);
}

RunReport run_of(RunBuilder& run) { return report_run(run.wrapper({}).build(), 0); }

TEST(GradientPlot, DrawsRanksThatAgreeAsOneLine) {
  RunBuilder builder(4, {"a"}, 5);
  std::vector<std::string> notes;
  const auto chart = gradient_chart(run_of(builder), notes);
  ASSERT_EQ(chart.lines.size(), 1u);
  EXPECT_EQ(chart.lines[0].label, "ranks 0, 1, 2 and 3, equal");
}

TEST(GradientPlot, ShowsManyCoursesAsTheirRangeAndSaysSo) {
  RunBuilder builder(20, {"a"}, 5);
  for (int rank = 0; rank < 20; ++rank) builder.observe(rank, 0, Stage::kGradient, 200 + rank);
  std::vector<std::string> notes;
  const auto chart = gradient_chart(run_of(builder), notes);
  ASSERT_TRUE(chart.band);
  EXPECT_EQ(chart.band->low[0], 200.0);
  EXPECT_EQ(chart.band->high[0], 219.0);
  EXPECT_EQ(chart.lines[0].y[0], 209.5);
  ASSERT_FALSE(notes.empty());
  EXPECT_THAT(notes[0], HasSubstr("20 ranks have 20 different curves"));
}

TEST(UsageMap, HasARowForEachRankWhereTheyDiffer) {
  RunBuilder builder(2, {"a", "b"}, 4);
  builder.unused(1, 1, 3);
  std::vector<std::string> notes;
  const auto report = run_of(builder);
  const auto map = usage_map(report, notes);
  ASSERT_EQ(map.rows.size(), 3u);
  EXPECT_EQ(map.rows[0].label, "all ranks");
  EXPECT_EQ(map.rows[1].shares, (plot::Values{1.0, 1.0, 1.0, 1.0}));
  EXPECT_EQ(map.rows[2].shares, (plot::Values{1.0, 1.0, 0.0, 0.0}));
  const auto table = unused_parameters(report);
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(table.rows[0], (std::vector<std::string>{"b", "1", "1", "2 of 4", "3", "4"}));
}

TEST(UsageMap, PoolsWhatIsAlwaysUsedAndManySteps) {
  std::vector<std::string> names;
  for (int i = 0; i < 60; ++i) names.push_back("layer" + std::to_string(i));
  RunBuilder builder(8, names, 400);
  builder.unused(3, 7);
  std::vector<std::string> notes;
  const auto map = usage_map(run_of(builder), notes);
  ASSERT_EQ(map.rows.size(), 2u);
  EXPECT_EQ(map.rows[0].group, "layer7 (7)");
  EXPECT_EQ(map.rows[0].shares[0], 7.0 / 8);
  EXPECT_EQ(map.rows[1].group, "59 parameters always used");
  EXPECT_EQ(map.first.size(), 134u);
  EXPECT_THAT(notes, testing::Contains(HasSubstr("stands for 3 examined steps")));
}

// Steps of 10 ms, of which 2 are the examination's.
RunBuilder timed_run(int world_size, int steps) {
  RunBuilder builder(world_size, {"a"}, steps);
  builder.each_step([](int, StepRecord& step) {
    step.started_ns = 1'000'000'000 + step.step * 10'000'000;
    step.duration_ns = 8'000'000;
    step.probe_ns = 2'000'000;
  });
  return builder;
}

LoggedCall call_at(const std::string& op, std::int64_t step, std::int64_t begin_ns,
                   std::int64_t end_ns) {
  LoggedCall call;
  call.op = op;
  call.step = step;
  call.begin_ns = begin_ns;
  call.end_ns = end_ns;
  return call;
}

TEST(PhasesOfRanks, PlacesCallsByTheStepsThatHoldThem) {
  RunBuilder builder = timed_run(1, 2);
  // Its clock began at the record's 1,010,000,000; each call leaves 1 ms to its step's bounds.
  builder.record(0).calls = {call_at("ddp.forward", 1, 1'000'000, 4'000'000),
                             call_at("ddp.backward", 1, 4'000'000, 9'000'000),
                             call_at("ddp.backward", 2, 13'000'000, 0)};
  const auto phases = phases_of(builder.build(), {});
  ASSERT_EQ(phases.ranks.size(), 1u);
  ASSERT_EQ(phases.ranks[0].blocks.size(), 2u);
  EXPECT_EQ(phases.ranks[0].blocks[1].began_ms, 10.0);
  ASSERT_EQ(phases.ranks[0].calls.size(), 2u);  // nothing tells how long the third one took
  EXPECT_EQ(phases.ranks[0].calls[0].from_ms, 1.0);
  EXPECT_EQ(phases.ranks[0].calls[1].to_ms, 9.0);
  EXPECT_EQ(phases.uncertainty_ms, 1.0);
}

TEST(PhasesOfRanks, SayWhereAStalledRankWas) {
  RunBuilder builder = timed_run(2, 3);
  for (int rank : {0, 1}) builder.record(rank).events.clear();
  RankExit stalled;
  stalled.rank = 1;
  stalled.kind = RankExit::Kind::kTimedOut;
  stalled.time_ns = 6'000'000'000;
  stalled.step = 4;
  stalled.phase = "batch";
  builder.info().exits = {stalled};
  const auto report = report_run(builder.build(), 0);
  ASSERT_EQ(report.phases.ranks.size(), 2u);
  ASSERT_TRUE(report.phases.ranks[1].end);
  std::vector<std::string> notes;
  const auto lanes = phase_lanes(report, notes);
  EXPECT_EQ(lanes.lanes[1].remark,
            "stopped making progress and was killed in step 4, between steps (batch)");
  ASSERT_EQ(lanes.knots.size(), 3u);  // the steps take 30 ms of five seconds
  EXPECT_LT(lanes.knots[1].first, 40.0);
}

TEST(PhasesOfRanks, OfAThousandStayFew) {
  RunBuilder builder = timed_run(200, 300);
  const auto phases = phases_of(builder.build(), {});
  EXPECT_EQ(phases.ranks.size(), Phases::kMaxRanks);
  EXPECT_EQ(phases.ranks_seen, 200u);
  EXPECT_EQ(phases.ranks[0].blocks.size(), 100u);
  EXPECT_EQ(phases.steps_per_block, 3);
}

TEST(Html, OfManyRanksAndStepsStaysSmall) {
  RunBuilder builder = timed_run(64, 500);
  for (int rank = 0; rank < 64; ++rank) builder.observe(rank, 0, Stage::kGradient, 200 + rank);
  std::ostringstream out;
  render_html(make_report({run_of(builder)}), {}, out);
  EXPECT_LT(out.str().size(), 400'000u);
  EXPECT_THAT(out.str(), HasSubstr("steps omitted"));
}

}  // namespace
}  // namespace ddp_doctor
