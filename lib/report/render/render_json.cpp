// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <nlohmann/json.hpp>

#include "lib/report/render/render.h"

namespace ddp_doctor {
namespace {

using nlohmann::ordered_json;

ordered_json number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

template <class T>
ordered_json maybe(const std::optional<T>& value) {
  if (!value) return nullptr;
  if constexpr (std::is_floating_point_v<T>) {
    return number(*value);
  } else {
    return *value;
  }
}

ordered_json list(const std::vector<std::optional<double>>& values) {
  ordered_json out = ordered_json::array();
  for (const auto& value : values) out.push_back(maybe(value));
  return out;
}

ordered_json to_json(const Range& range) {
  return {{"low", range.low},
          {"high", range.high},
          {"finite", range.finite},
          {"nonfinite", range.nonfinite}};
}

ordered_json to_json(const StepRow& row) {
  ordered_json out = {{"step", row.step},
                      {"gradient_norm", list(row.gradient_norm)},
                      {"synced", maybe(row.synced)},
                      {"drift", maybe(row.drift)},
                      {"weights_differ", row.weights_differ},
                      {"unused", row.unused},
                      {"loss", list(row.loss)},
                      {"milliseconds", maybe(row.milliseconds)}};
  if (!row.drift_along.empty()) {
    out["drift_along"] = ordered_json::array();
    for (const auto& drift : row.drift_along) out["drift_along"].push_back(maybe(drift));
  }
  if (!row.many) return out;
  out["many"] = {{"gradient_norm", to_json(row.many->gradient_norm)},
                 {"loss", to_json(row.many->loss)},
                 {"unused", ordered_json::array()}};
  for (const auto& [indices, ranks] : row.many->unused)
    out["many"]["unused"].push_back({{"indices", indices}, {"ranks", ranks.text()}});
  return out;
}

ordered_json to_json(const std::vector<RootGroup>& groups) {
  ordered_json out = ordered_json::array();
  for (const auto& group : groups) {
    out.push_back(
        {{"ranks", group.ranks.text()}, {"tensors", group.tensors}, {"root", group.root}});
    if (!group.replicas.empty()) out.back()["replicas"] = group.replicas;
  }
  return out;
}

ordered_json texts_of(const std::vector<Ranks>& groups) {
  ordered_json out = ordered_json::array();
  for (const auto& group : groups) out.push_back(RankSet(group).text());
  return out;
}

ordered_json to_json(const MeshMap& map) {
  ordered_json out = {{"dimensions", ordered_json::array()}, {"placements", ordered_json::array()}};
  for (const auto& dimension : map.dimensions)
    out["dimensions"].push_back({{"name", dimension.name}, {"groups", texts_of(dimension.groups)}});
  for (const auto& placed : map.placements) {
    out["placements"].push_back({{"along", placed.along},
                                 {"source", placed.source},
                                 {"replicas", texts_of(placed.replicas)},
                                 {"parameters", placed.parameters}});
  }
  return out;
}

ordered_json to_json(const Finding& finding) {
  ordered_json out = {
      {"rule", finding.rule},
      {"name", finding.name},
      {"severity", name_of(finding.severity)},
      {"certainty", name_of(finding.certainty)},
      {"run", finding.run},
      {"ranks", finding.ranks},
      {"first_step", maybe(finding.first_step)},
      {"parameters", ordered_json::array()},
      {"message", finding.message},
      {"evidence", finding.evidence},
      {"where", nullptr},
      {"prescription", {{"text", finding.prescription.text}, {"strategy", nullptr}}},
      {"proof", nullptr},
      {"consequences", ordered_json::array()}};
  for (const auto& parameter : finding.parameters) {
    out["parameters"].push_back({{"name", parameter.name}, {"index", maybe(parameter.index)}});
  }
  if (finding.where) {
    out["where"] = {
        {"file", finding.where->file}, {"line", finding.where->line}, {"via", finding.where->via}};
  }
  if (!finding.prescription.strategy.empty())
    out["prescription"]["strategy"] = finding.prescription.strategy;
  if (finding.proof) {
    out["proof"] = {{"run", finding.proof->run},
                    {"strategy", finding.proof->strategy},
                    {"cured", finding.proof->cured},
                    {"text", finding.proof->text}};
  }
  out["change"] = nullptr;
  if (finding.change) {
    out["change"] = {{"file", finding.change->file},
                     {"line", finding.change->line},
                     {"before", finding.change->before},
                     {"after", finding.change->after},
                     {"text", finding.change->text}};
  }
  for (const auto& consequence : finding.consequences)
    out["consequences"].push_back(to_json(consequence));
  return out;
}

ordered_json ddp_block(const std::vector<DdpField>& fields) {
  ordered_json out = ordered_json::object();
  for (const auto& field : fields) {
    if (field.key == "master_port") continue;  // differs in each run
    auto& slot = out[field.moment][field.key];
    if (field.is_integer) {
      slot = std::stoll(field.value);
    } else {
      slot = field.value;
    }
  }
  return out;
}

ordered_json to_json(const RunReport& run) {
  ordered_json out = {{"program", run.info.program},
                      {"strategy", run.info.strategy},
                      {"ranks", run.ranks.text()},
                      {"label", run.label},
                      {"verdict", name_of(run.health())},
                      {"steps", run.steps_seen()},
                      {"outcome", run.outcome},
                      {"clean", run.clean()},
                      {"rules", ordered_json::array()},
                      {"exit",
                       {{"completed", run.completed},
                        {"ending", name_of(run.info.ending)},
                        {"ranks", ordered_json::array()}}},
                      {"overhead", {{"milliseconds_per_step", maybe(run.probe_ms)}}},
                      {"step_time", nullptr},
                      {"cost", nullptr},
                      {"changes", run.changes},
                      {"unapplied", run.unapplied},
                      {"mean_check", nullptr},
                      {"steps_table", ordered_json::array()},
                      {"parameters", ordered_json::array()},
                      {"ddp", ddp_block(run.ddp)},
                      {"checked", run.diagnosis.checked},
                      {"not_checked", ordered_json::array()},
                      {"coverage",
                       {{"compared", run.coverage.compared},
                        {"sharded", run.coverage.shards},
                        {"left_out", run.coverage.left_out},
                        {"nothing", run.coverage.nothing}}},
                      {"notes", run.notes},
                      {"roots", ordered_json::array()}};
  for (const auto& step : run.roots) {
    out["roots"].push_back({{"step", step.step},
                            {"gradient", to_json(step.gradient)},
                            {"weight", to_json(step.weight)}});
  }
  if (!run.ended_well.empty()) out["exit"]["ended_well"] = run.ended_well.text();
  for (const auto& finding : run.diagnosis.findings) out["rules"].push_back(finding.rule);
  for (const auto& exit : run.info.exits) {
    out["exit"]["ranks"].push_back(
        {{"rank", exit.rank}, {"kind", name_of(exit.kind)}, {"code", exit.code}});
  }
  if (run.step_time) {
    out["step_time"] = {{"median_ms", run.step_time->median_ms},
                        {"low_ms", run.step_time->low_ms},
                        {"high_ms", run.step_time->high_ms},
                        {"steps", run.step_time->steps}};
  }
  if (run.cost) {
    out["cost"] = {{"base", run.cost->base},   {"ratio", run.cost->ratio},
                   {"low", run.cost->low},     {"high", run.cost->high},
                   {"pairs", run.cost->pairs}, {"measurable", run.cost->measurable()}};
  }
  if (run.mean_check) {
    out["mean_check"] = {{"step", run.mean_check->step},
                         {"relative_error", number(run.mean_check->relative_error)}};
  }
  if (!run.mesh.empty()) out["mesh"] = to_json(run.mesh);
  for (const auto& row : run.steps_table) out["steps_table"].push_back(to_json(row));
  for (const auto& tensor : run.tensors) {
    out["parameters"].push_back({{"name", tensor.name},
                                 {"kind", tensor.kind},
                                 {"index", maybe(tensor.ddp_index)},
                                 {"dtype", tensor.dtype},
                                 {"shape", tensor.sizes},
                                 {"trainable", tensor.trainable}});
  }
  for (const auto& skipped : run.diagnosis.not_checked) {
    out["not_checked"].push_back({{"rule", skipped.rule}, {"reason", skipped.reason}});
  }
  return out;
}

ordered_json to_json(const Equality& equality) {
  const auto& seen = equality.seen;
  ordered_json out = {{"runs", {equality.a, equality.b}},
                      {"steps", seen.steps},
                      {"parameters", seen.parameters},
                      {"equal", !seen.parting && seen.parameters > 0},
                      {"parting", nullptr}};
  if (seen.parting) {
    out["parting"] = {{"step", seen.parting->step},
                      {"of", seen.parting->stage == Stage::kGradient ? "gradient" : "weight"},
                      {"parameter", seen.parting->parameter},
                      {"rank", seen.parting->rank}};
  }
  return out;
}

ordered_json to_json(const Parity& parity) {
  ordered_json out = {
      {"inconclusive", nullptr}, {"steps", ordered_json::array()}, {"notes", parity.notes}};
  if (!parity.inconclusive.empty()) out["inconclusive"] = parity.inconclusive;
  for (const auto& step : parity.steps) {
    out["steps"].push_back({{"step", step.step},
                            {"parameters", step.parameters},
                            {"equal", step.equal},
                            {"distance", number(step.distance)},
                            {"rounding", number(step.rounding)}});
  }
  return out;
}

}  // namespace

ordered_json finding_as_json(const Finding& finding) { return to_json(finding); }

// Two runs of a seeded program give the same report, except for times.
void render_json(const Report& report, const RenderOptions&, std::ostream& out) {
  auto environment = report.runs.front().environment;
  environment.erase("pid");
  ordered_json json = {
      {"schema_version", 1},
      {"tool", {{"name", "ddp-doctor"}, {"version", report.tool_version}}},
      {"environment", environment},
      {"program", {{"path", report.program}, {"settings", report.runs.front().info.settings}}},
      {"world_size", report.world_size},
      {"verdict", name_of(report.health())},
      {"purpose", name_of(report.purpose)},
      {"difference", report.difference},
      {"equalities", ordered_json::array()},
      {"runs", ordered_json::array()},
      {"findings", ordered_json::array()},
      {"suppressed", ordered_json::array()},
      {"unused_suppressions", report.unused_suppressions},
      {"partial_suppressions", nlohmann::ordered_json::array()}};
  for (const auto& [suppression, left] : report.partial_suppressions)
    json["partial_suppressions"].push_back({{"suppression", suppression}, {"left", left}});
  for (const auto& suppressed : report.suppressed) {
    json["suppressed"].push_back({{"finding", to_json(suppressed.finding)},
                                  {"suppression", suppressed.suppression},
                                  {"reason", suppressed.reason}});
  }
  for (const auto& run : report.runs) {
    json["runs"].push_back(to_json(run));
    if (report.purpose != Purpose::kCompare) continue;
    if (run.parity) json["runs"].back()["parity"] = to_json(*run.parity);
    auto& findings = json["runs"].back()["findings"] = ordered_json::array();
    for (const auto& finding : run.diagnosis.findings) findings.push_back(to_json(finding));
  }
  if (const auto& parity = report.runs.front().parity) json["parity"] = to_json(*parity);
  for (const auto& equality : report.equalities) json["equalities"].push_back(to_json(equality));
  for (const auto& finding : report.findings) json["findings"].push_back(to_json(finding));
  out << json.dump(2, ' ', false, ordered_json::error_handler_t::replace) << '\n';
}

}  // namespace ddp_doctor
