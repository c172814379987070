// SPDX-License-Identifier: BSD-3-Clause
// The text report: what folds, in which order its parts stand, how figures are printed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "lib/report/compare/make_report.h"
#include "lib/report/render/render.h"
#include "lib/report/render/wrap.h"
#include "lib/report/value/cells.h"
#include "lib/report/value/fold.h"
#include "tests/unit/run_builder.h"

namespace ddp_doctor {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

// Steps from 1 on, of equal gradients on two ranks: their norms are 1, 2, 3, ...
RunReport run_of(std::int64_t steps, int ranks = 2) {
  RunReport run;
  run.completed = true;
  for (std::int64_t step = 1; step <= steps; ++step) {
    StepRow row;
    row.step = step;
    row.synced = true;
    row.drift = 0.0;
    row.gradient_norm.assign(static_cast<std::size_t>(ranks), static_cast<double>(step));
    row.loss.assign(static_cast<std::size_t>(ranks), 1.0);
    row.unused.resize(static_cast<std::size_t>(ranks));
    run.steps_table.push_back(row);
  }
  return run;
}

std::vector<std::string> labels(const RunReport& run, std::size_t max_rows = 12) {
  std::vector<std::string> text;
  for (const auto& fold : fold_steps(run, max_rows))
    text.push_back(fold.omitted ? "..." : label_of(fold, run));
  return text;
}

std::string text_of(const Report& report, const RenderOptions& options = {}) {
  std::ostringstream out;
  render_text(report, options, out);
  return out.str();
}

Report report_of(RunReport run) {
  RunBuilder builder(2, {"orphan.weight", "head.weight"}, 4);
  RunReport whole = report_run(builder.wrapper({{"device_ids", ""}}).build(), 0);
  whole.steps_table = std::move(run.steps_table);
  return make_report({std::move(whole)});
}

Report sick_report() {
  RunBuilder run(2, {"orphan.weight", "head.weight"}, 6);
  run.wrapper({}).unused(0, 0).unused(1, 0).differ(1, 1, Stage::kGradient, 1);
  for (int rank = 0; rank < 2; ++rank) {
    run.record(rank).ddp_fields.push_back({"runtime", "avg_forward_compute_time", "117480", true});
    run.raise(rank, 2, "Expected to have finished reduction in the prior iteration.");
  }
  return make_report({report_run(run.build(), 0)});
}

std::size_t position(const std::string& text, const std::string& what) {
  EXPECT_THAT(text, HasSubstr(what));
  return text.find(what);
}

TEST(Fold, HasTheFirstStepAndTheRestThatSaysTheSame) {
  EXPECT_THAT(labels(run_of(8)), ElementsAre("1", "2..8"));
  EXPECT_THAT(labels(run_of(3)), ElementsAre("1", "2", "3"));
  EXPECT_THAT(labels(run_of(0)), ElementsAre());
}

TEST(Fold, EndsWhereAStepDiffers) {
  RunReport run = run_of(8);
  run.steps_table[4].synced = false;
  EXPECT_THAT(labels(run), ElementsAre("1", "2..4", "5", "6..8"));
  run = run_of(8);
  run.steps_table[7].unused = {{3}, {}};
  EXPECT_THAT(labels(run), ElementsAre("1", "2..7", "8"));
  run = run_of(8);
  run.steps_table[2].loss[1] = std::nan("");
  EXPECT_THAT(labels(run), ElementsAre("1", "2", "3", "4..8"));
  run = run_of(8);
  for (std::size_t i = 4; i < 8; ++i) run.steps_table[i].drift = 0.5;
  EXPECT_THAT(labels(run), ElementsAre("1", "2..4", "5..8"));
}

TEST(Fold, CountsTheExaminedStepsWhereSomeWereNot) {
  RunReport run = run_of(20);
  for (std::size_t i = 10; i < 20; ++i)
    run.steps_table[i].step = 10 * static_cast<std::int64_t>(i - 8);
  EXPECT_THAT(labels(run), ElementsAre("1", "19 of 2..110"));
}

TEST(Fold, OfManyDriftsIsARangeAndOfManyChangesHasAGap) {
  RunReport run = run_of(40);
  for (auto& row : run.steps_table) {
    row.synced = false;
    row.drift = 0.01 * static_cast<double>(row.step);
  }
  EXPECT_THAT(labels(run), ElementsAre("1", "2..40"));
  EXPECT_THAT(text_of(report_of(run)), HasSubstr("| 2.000e-02 .. 4.000e-01\n"));
  for (auto& row : run.steps_table) row.synced = row.step % 2 == 0;
  EXPECT_THAT(labels(run),
              ElementsAre("1", "2", "3", "4", "5", "6", "...", "36", "37", "38", "39", "40"));
  EXPECT_THAT(text_of(report_of(run)), HasSubstr("... | 29 steps omitted\n"));
}

TEST(TextReport, PrintsEqualNormsOnceAndOthersByRank) {
  RunReport run = run_of(8);
  run.steps_table[0].gradient_norm = {1.5, 2.5};
  const std::string text = text_of(report_of(run));
  EXPECT_THAT(text, HasSubstr("   1 | [1.50000, 2.50000] |    yes |            0\n"));
  EXPECT_THAT(text, HasSubstr("2..8 | 2.00000 .. 8.00000 |    yes |            0\n"));
  EXPECT_THAT(text, Not(HasSubstr("unused")));
}

TEST(TextReport, ShowsNormsThatAreNotFinite) {
  RunReport run = run_of(8);
  run.steps_table[3].gradient_norm = {std::nan(""), 2.0};
  for (std::size_t i = 4; i < 8; ++i) run.steps_table[i].gradient_norm = {std::nan(""), INFINITY};
  const std::string text = text_of(report_of(run));
  EXPECT_THAT(text, HasSubstr("   4 | [nan, 2.00000] |"));
  EXPECT_THAT(text, HasSubstr("5..8 |     not finite |"));
}

TEST(TextReport, OfManyRanksStaysNarrow) {
  RunReport run = run_of(300, 64);
  run.steps_table[9].gradient_norm[63] = 0.5;
  run.steps_table[9].gradient_norm[7] = std::nan("");
  run.steps_table[9].gradient_norm[8].reset();
  const std::string text = text_of(report_of(run));
  EXPECT_THAT(text, HasSubstr("     10 | 0.50000 .. 10.00000 on 62, not finite on 1 |"));
  EXPECT_THAT(text, HasSubstr("11..300 |"));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
}

TEST(TextReport, HasTheFindingsFirstInAFileAndLastInATerminal) {
  const Report report = sick_report();
  const std::string file = text_of(report);
  EXPECT_LT(position(file, "\nFindings\n"), position(file, "\nGradient norm per rank"));
  EXPECT_LT(position(file, "\nDDP initialized with\n"), position(file, "\nVerdict: "));
  const std::string terminal = text_of(report, {.terminal = true});
  EXPECT_LT(position(terminal, "\nDDP initialized with\n"), position(terminal, "\nFindings\n"));
  EXPECT_LT(position(terminal, "The examination itself cost"), position(terminal, "\nFindings\n"));
  for (const auto& text : {file, terminal})
    EXPECT_THAT(text, EndsWith("\n\nVerdict: sick: DDP201 unused-parameters\n"));
  EXPECT_EQ(std::count(file.begin(), file.end(), '\n'),
            std::count(terminal.begin(), terminal.end(), '\n'));
}

TEST(TextReport, FitsAScreenAndSaysMoreWhenVerbose) {
  const Report report = sick_report();
  const std::string text = text_of(report);
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 40);
  EXPECT_THAT(text, HasSubstr("    DDP102 gradients-out-of-sync: ranks 0 and 1, from step 1; in 1 "
                              "of 1 step\n"));
  for (const char* more : {"avg_forward_compute_time", "Evidence: ", "Steps of ddp"})
    EXPECT_THAT(text, Not(HasSubstr(more)));
  const std::string verbose = text_of(report, {.verbose = true});
  EXPECT_THAT(verbose, HasSubstr("DDP at the last sampled iteration\n"
                                 "avg_forward_compute_time: 117480\n"));
  EXPECT_THAT(verbose,
              HasSubstr("\nSteps of ddp\nstep |         gradient norm |    loss | synced |"));
  EXPECT_THAT(verbose,
              HasSubstr("  Evidence: parameters unused: 1; parameters: 2; steps unused: 1;"));
  EXPECT_THAT(verbose, HasSubstr("gradient of head.weight (index 1) differs"));
}

TEST(TextReport, HasNoMoreDigitsThanAFigure) {
  EXPECT_EQ(cells::milliseconds(0.0123456), "0.0123");
  EXPECT_EQ(cells::milliseconds(1.005), "1");
  EXPECT_EQ(cells::milliseconds(11.794), "11.8");
  EXPECT_EQ(cells::milliseconds(99.96), "100");
  EXPECT_EQ(cells::milliseconds(12345.6), "12346");
  EXPECT_EQ(cells::milliseconds(0.669, 2), "0.67");
  EXPECT_EQ(cells::milliseconds(9.97, 2), "10");
  EXPECT_EQ(cells::milliseconds(12.4, 2), "12");
  const StepTime wide{2.44, 0.763, 6.6, 8};
  EXPECT_EQ(cells::milliseconds(wide.median_ms, wide), "2");
  EXPECT_EQ(cells::milliseconds(wide.low_ms, wide), "0.8");
  EXPECT_EQ(cells::milliseconds(wide.high_ms, wide), "7");
  const StepTime narrow{12.31, 12.1, 12.6, 8};
  EXPECT_EQ(cells::milliseconds(narrow.median_ms, narrow), "12.3");
  EXPECT_EQ(cells::figure(0.77194), "0.77194");
  EXPECT_EQ(cells::figure(0.000012345), "1.234e-05");
  EXPECT_EQ(cells::figure(1234567.0), "1.235e+06");
  EXPECT_THAT(text_of(report_of(run_of(4))), HasSubstr("device_ids: -"));
}

TEST(Columns, GoDownThenAcrossAndFitTheLine) {
  std::ostringstream out;
  print_columns(out, {std::string(48, 'a'), "b", std::string(48, 'c'), "d", std::string(120, 'e')});
  EXPECT_EQ(out.str(), std::string(48, 'a') + "  " + std::string(48, 'c') + "\nb" +
                           std::string(49, ' ') + "d\n" + std::string(120, 'e') + "\n");
  std::ostringstream none;
  print_columns(none, {});
  EXPECT_EQ(none.str(), "");
}

}  // namespace
}  // namespace ddp_doctor
