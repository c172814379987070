// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/merge/read_json.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "lib/error.h"

namespace ddp_doctor {
namespace {

using nlohmann::ordered_json;

constexpr char kMakeAgain[] =
    "make it again: ddp-doctor report RUN-FOLDER --format json > node.json";

double number_from(const ordered_json& json) {
  if (!json.is_string()) return json.get<double>();
  const auto text = json.get<std::string>();
  if (text == "nan") return std::nan("");
  return text == "-inf" ? -HUGE_VAL : HUGE_VAL;
}

std::optional<double> maybe_number(const ordered_json& json) {
  return json.is_null() ? std::nullopt : std::optional(number_from(json));
}

ByRank by_rank_from(const ordered_json& json) {
  ByRank values;
  for (const auto& value : json) values.push_back(maybe_number(value));
  return values;
}

template <class Enum>
Enum named(const ordered_json& json, std::initializer_list<Enum> all) {
  for (const Enum one : all) {
    if (json.get<std::string>() == name_of(one)) return one;
  }
  throw Error("unknown name " + json.dump());
}

Range range_from(const ordered_json& json) {
  return {json.at("low"), json.at("high"), json.at("finite"), json.at("nonfinite")};
}

StepRow row_from(const ordered_json& json) {
  StepRow row;
  row.step = json.at("step");
  row.gradient_norm = by_rank_from(json.at("gradient_norm"));
  if (!json.at("synced").is_null()) row.synced = json.at("synced").get<bool>();
  row.drift = maybe_number(json.at("drift"));
  if (json.contains("drift_along")) row.drift_along = by_rank_from(json.at("drift_along"));
  row.weights_differ = json.at("weights_differ");
  row.unused = json.at("unused").get<std::vector<std::vector<int>>>();
  row.loss = by_rank_from(json.at("loss"));
  row.milliseconds = maybe_number(json.at("milliseconds"));
  if (!json.contains("many")) return row;
  const auto& many = json.at("many");
  row.many = ManyRanks{range_from(many.at("gradient_norm")), range_from(many.at("loss")), {}};
  for (const auto& group : many.at("unused")) {
    row.many->unused.emplace(group.at("indices").get<std::vector<int>>(),
                             RankSet::from(group.at("ranks")));
  }
  return row;
}

std::vector<RootGroup> groups_from(const ordered_json& json) {
  std::vector<RootGroup> groups;
  for (const auto& group : json)
    groups.push_back({group.at("tensors"), group.at("root"), RankSet::from(group.at("ranks")),
                      group.value("replicas", "")});
  return groups;
}

Finding finding_from(const ordered_json& json) {
  Finding finding;
  finding.rule = json.at("rule");
  finding.name = json.at("name");
  finding.severity =
      named(json.at("severity"), {Severity::kAdvice, Severity::kWarning, Severity::kError});
  finding.certainty = named(json.at("certainty"), {Certainty::kLikely, Certainty::kCertain});
  finding.ranks = json.at("ranks").get<std::vector<int>>();
  if (!json.at("first_step").is_null())
    finding.first_step = json.at("first_step").get<std::int64_t>();
  for (const auto& parameter : json.at("parameters")) {
    auto& read = finding.parameters.emplace_back();
    read.name = parameter.at("name");
    if (!parameter.at("index").is_null()) read.index = parameter.at("index").get<int>();
  }
  finding.message = json.at("message");
  finding.evidence = json.at("evidence");
  if (const auto& where = json.at("where"); !where.is_null()) {
    finding.where = Where{where.at("file"), where.at("line"), {}};
    if (where.contains("via")) finding.where->via = where.at("via").get<std::vector<std::string>>();
  }
  finding.prescription.text = json.at("prescription").at("text");
  if (const auto& strategy = json.at("prescription").at("strategy"); !strategy.is_null())
    finding.prescription.strategy = strategy;
  if (const auto& change = json.at("change"); !change.is_null()) {
    finding.change = Change{change.at("file"), change.at("line"), change.at("before"),
                            change.at("after"), change.at("text")};
  }
  for (const auto& consequence : json.at("consequences"))
    finding.consequences.push_back(finding_from(consequence));
  return finding;
}

RankExit exit_from(const ordered_json& json) {
  using Kind = RankExit::Kind;
  RankExit exit;
  exit.rank = json.at("rank");
  exit.kind = named(json.at("kind"), {Kind::kUnknown, Kind::kExited, Kind::kSignaled,
                                      Kind::kTimedOut, Kind::kStopped});
  exit.code = json.at("code");
  return exit;
}

TensorInfo tensor_from(const ordered_json& json) {
  TensorInfo tensor;
  tensor.name = json.at("name");
  tensor.kind = json.at("kind");
  if (!json.at("index").is_null()) tensor.ddp_index = json.at("index").get<int>();
  tensor.dtype = json.at("dtype");
  tensor.sizes = json.at("shape").get<std::vector<std::int64_t>>();
  tensor.trainable = json.at("trainable");
  return tensor;
}

std::vector<Ranks> groups_of(const ordered_json& json) {
  std::vector<Ranks> groups;
  for (const auto& ranks : json) groups.push_back(RankSet::from(ranks).list());
  return groups;
}

MeshMap mesh_from(const ordered_json& json) {
  MeshMap map;
  for (const auto& dimension : json.at("dimensions"))
    map.dimensions.push_back({dimension.at("name"), groups_of(dimension.at("groups"))});
  for (const auto& placed : json.at("placements")) {
    map.placements.push_back({placed.at("along").get<std::vector<std::string>>(),
                              placed.at("source"), groups_of(placed.at("replicas")),
                              placed.at("parameters").get<std::vector<std::string>>()});
  }
  return map;
}

RunReport run_from(const ordered_json& json) {
  RunReport run;
  run.info.program = json.at("program");
  run.info.strategy = json.at("strategy");
  run.label = json.at("label");
  run.ranks = RankSet::from(json.at("ranks"));
  run.last_step = json.at("steps");
  run.completed = json.at("exit").at("completed");
  run.info.ending = ending_of(json.at("exit").value("ending", ""));
  for (const auto& exit : json.at("exit").at("ranks")) run.info.exits.push_back(exit_from(exit));
  run.ended_well = RankSet::from(json.at("exit").value("ended_well", ""));
  run.probe_ms = maybe_number(json.at("overhead").at("milliseconds_per_step"));
  if (const auto& time = json.at("step_time"); !time.is_null())
    run.step_time =
        StepTime{time.at("median_ms"), time.at("low_ms"), time.at("high_ms"), time.at("steps")};
  run.changes = json.at("changes").get<std::vector<std::string>>();
  run.unapplied = json.at("unapplied").get<std::vector<std::string>>();
  if (const auto mesh = json.find("mesh"); mesh != json.end()) run.mesh = mesh_from(*mesh);
  if (const auto& check = json.at("mean_check"); !check.is_null())
    run.mean_check = MeanCheck{check.at("step"), number_from(check.at("relative_error"))};
  for (const auto& row : json.at("steps_table")) run.steps_table.push_back(row_from(row));
  for (const auto& tensor : json.at("parameters")) run.tensors.push_back(tensor_from(tensor));
  for (const auto& [moment, fields] : json.at("ddp").items()) {
    for (const auto& [key, value] : fields.items()) {
      const bool text = value.is_string();
      run.ddp.push_back({moment, key, text ? value.get<std::string>() : value.dump(), !text});
    }
  }
  run.diagnosis.checked = json.at("checked").get<std::vector<std::string>>();
  for (const auto& skipped : json.at("not_checked"))
    run.diagnosis.not_checked.push_back({skipped.at("rule"), skipped.at("reason")});
  if (const auto found = json.find("coverage"); found != json.end())
    run.coverage = {found->at("compared"), found->value("sharded", std::size_t{0}),
                    found->at("left_out"), found->at("nothing")};
  run.notes = json.at("notes").get<std::vector<std::string>>();
  for (const auto& step : json.at("roots")) {
    run.roots.push_back(
        {step.at("step"), groups_from(step.at("gradient")), groups_from(step.at("weight"))});
  }
  run.outcome = json.at("outcome");
  return run;
}

Parity parity_from(const ordered_json& json) {
  Parity parity;
  if (const auto& reason = json.at("inconclusive"); !reason.is_null()) parity.inconclusive = reason;
  for (const auto& step : json.at("steps"))
    parity.steps.push_back({step.at("step"), step.at("parameters"), step.at("equal"),
                            number_from(step.at("distance")), number_from(step.at("rounding"))});
  parity.notes = json.at("notes").get<std::vector<std::string>>();
  return parity;
}

Report report_from(const ordered_json& json) {
  Report report;
  report.tool_version = json.at("tool").at("version");
  report.program = json.at("program").at("path");
  report.world_size = json.at("world_size");
  RunReport run = run_from(json.at("runs").at(0));
  run.info.world_size = report.world_size;
  run.info.settings = json.at("program").at("settings").get<std::map<std::string, std::string>>();
  run.environment = json.at("environment").get<std::map<std::string, std::string>>();
  if (run.ranks.empty() || run.ranks.last() >= report.world_size)
    throw Error(fmt::format("its ranks are \"{}\" of {}", run.ranks.text(), report.world_size));
  for (const auto& finding : json.at("findings")) report.findings.push_back(finding_from(finding));
  run.diagnosis.findings = report.findings;
  for (const auto& suppressed : json.at("suppressed")) {
    report.suppressed.push_back({finding_from(suppressed.at("finding")),
                                 suppressed.at("suppression"), suppressed.at("reason")});
  }
  if (const auto found = json.find("parity"); found != json.end()) run.parity = parity_from(*found);
  report.unused_suppressions = json.at("unused_suppressions").get<std::vector<std::string>>();
  for (const auto& partial : json.at("partial_suppressions"))
    report.partial_suppressions.push_back({partial.at("suppression"), partial.at("left")});
  if (!run.completed) {
    const auto outcome = std::exchange(run.outcome, {});
    settle_outcome(run);  // for its step
    run.outcome = outcome;
  }
  report.runs.push_back(std::move(run));
  return report;
}

// Checked before anything else is read.
void check_kind(const ordered_json& json, const std::string& name) {
  if (!json.is_object() || !json.contains("schema_version") || !json.contains("runs"))
    throw Error(fmt::format("{}: JSON, but not a report of ddp-doctor; {}", name, kMakeAgain));
  if (json.at("schema_version") != 1) {
    throw Error(fmt::format("{}: a report of schema {}, this ddp-doctor reads schema 1; {}", name,
                            json.at("schema_version").dump(), kMakeAgain));
  }
  if (!json.at("runs").is_array() || json.at("runs").size() != 1) {
    throw Error(
        fmt::format("{}: a report of {} runs; only reports of one run can be merged: "
                    "give its folder instead",
                    name, json.at("runs").size()));
  }
  if (!json.at("runs").at(0).contains("roots")) {
    throw Error(
        fmt::format("{}: a report of an earlier ddp-doctor, which lacks what merging needs; {}",
                    name, kMakeAgain));
  }
}

}  // namespace

Report read_report(const std::string& text, const std::string& name) {
  const auto json = ordered_json::parse(text, nullptr, false);
  if (json.is_discarded())
    throw Error(fmt::format("{}: not JSON, or truncated; {}", name, kMakeAgain));
  check_kind(json, name);
  try {
    return report_from(json);
  } catch (const nlohmann::json::exception& error) {
    throw Error(fmt::format("{}: not a complete report of ddp-doctor ({}); {}", name, error.what(),
                            kMakeAgain));
  } catch (const Error& error) {
    throw Error(fmt::format("{}: not a complete report of ddp-doctor ({}); {}", name, error.what(),
                            kMakeAgain));
  }
}

}  // namespace ddp_doctor
