// SPDX-License-Identifier: BSD-3-Clause
#include "tool/cli/gate.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/diagnose/rule.h"
#include "lib/error.h"
#include "lib/report/compare/make_report.h"
#include "lib/report/gate/suppression.h"

namespace ddp_doctor {
namespace {

// Removes findings that report only that replicas differ, if the exact difference is known at every
// step and within the bound. A finding that names a cause stays, however small its effect so far.
void tolerate_drift(Report& report, double bound) {
  auto& run = report.runs.front();
  double most = 0.0;
  for (const auto& row : run.steps_table) {
    if (!row.weights_differ) continue;
    if (!row.drift || !(*row.drift <= bound)) return;  // unknown, not a number, or too far
    most = std::max(most, *row.drift);
  }
  bool tolerated = false;
  select_findings(report, [&](const Finding& finding) {
    const bool tolerable = rule_of(finding).only_a_difference;
    tolerated = tolerated || tolerable;
    return !tolerable;
  });
  if (tolerated)
    run.notes.push_back(fmt::format(
        "weights differ by at most {:.17g}, which --max-drift {:.17g} allows", most, bound));
}

bool fails(const Report& report, const std::optional<Severity>& fail_on) {
  return fail_on && std::any_of(report.findings.begin(), report.findings.end(),
                                [&](const auto& finding) { return finding.severity >= *fail_on; });
}

void judge_by_baseline(Report& report, const GateOptions& options) {
  auto& run = report.runs.front();
  const auto baseline = Baseline::load(*options.baseline);
  auto compared = baseline.compare(run, options.tolerance.value_or(baseline.tolerance()));
  for (auto& finding : compared.differences) report.findings.push_back(std::move(finding));
  if (!compared.note.empty()) run.notes.push_back(std::move(compared.note));
  select_findings(report, [](const Finding&) { return true; });  // sorts by severity again
  for (const Rule* rule : {&kNumericsChanged, &kGraphChanged})
    run.diagnosis.checked.emplace_back(rule->code);
}

void update_baseline(const Report& report, const GateOptions& options,
                     const RenderOptions& rendering, std::ostream& messages) {
  if (report.health() == Health::kInconclusive || fails(report, rendering.fail_on)) {
    messages << fmt::format("ddp-doctor: {} was not updated: the run is not healthy\n",
                            options.baseline->string());
    return;
  }
  if (options.measures_rounding() && !report.rounding)
    throw Error(fmt::format(
        "--tolerance measured: {} was not updated: these records lack the second run, which rounds "
        "differently; make both with ddp-doctor check",
        options.baseline->string()));
  const auto rounding = options.measures_rounding() ? report.rounding : std::nullopt;
  Baseline::of(report.runs.front(), rounding).save(*options.baseline);
  messages << fmt::format("ddp-doctor: wrote the baseline {}; commit it\n",
                          options.baseline->string());
}

}  // namespace

void add_gate_flags(CLI::App& app, GateOptions& options) {
  app.add_option(
         "--max-drift", options.max_drift,
         "Max |W_i - W_j| that passes if no cause is found; 0: weights must be bit-identical")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option(
         "--suppress", options.suppressions,
         "An expected finding, and the reason: \"CODE:PARAMETERS:PLACE reason\", with shell "
         "patterns; repeatable")
      ->allow_extra_args(false)
      ->type_name("TEXT");
  app.add_option(
         "--baseline", options.baseline,
         "Baseline of an earlier run: fails at the first step whose values or used parameters "
         "differ from it")
      ->type_name("FILE");
  app.add_flag("--update-baseline", options.update_baseline,
               "Overwrite the file of --baseline with this run, if it is healthy");
  app.add_option(
         "--tolerance", options.tolerance,
         "How far a run may be from its baseline: bits (not at all), or measured (as far as "
         "another machine's or torch's rounding; with --update-baseline the program runs twice) "
         "[what the file was written with]")
      ->transform(CLI::CheckedTransformer(std::map<std::string, Tolerance>{
          {"bits", Tolerance::kBits}, {"measured", Tolerance::kMeasured}}))
      ->type_name("bits|measured");
}

void check_gate(const GateOptions& options) {
  for (const auto& text : options.suppressions) Suppression{text};
  if (options.update_baseline && !options.baseline)
    throw Error("--update-baseline needs --baseline FILE");
  if (options.tolerance && !options.baseline) throw Error("--tolerance needs --baseline FILE");
  if (options.baseline && !options.update_baseline) Baseline::load(*options.baseline);
}

void apply_gate(Report& report, const GateOptions& options, const RenderOptions& rendering,
                std::ostream& messages) {
  if (options.max_drift > 0.0) tolerate_drift(report, options.max_drift);
  if (options.baseline && !options.update_baseline) judge_by_baseline(report, options);
  std::vector<Suppression> suppressions;
  for (const auto& text : options.suppressions) suppressions.emplace_back(text);
  suppress(report, suppressions, rendering);
  report.nothing_compared = report.world_size == 1 && !options.baseline;
  if (options.update_baseline) update_baseline(report, options, rendering, messages);
}

}  // namespace ddp_doctor
