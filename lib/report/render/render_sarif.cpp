// SPDX-License-Identifier: BSD-3-Clause
// For code scanning: SARIF 2.1.0. A finding keeps its fingerprint when its line moves.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "lib/diagnose/rule.h"
#include "lib/report/render/place.h"
#include "lib/report/value/verdict.h"

namespace ddp_doctor {
namespace {

using nlohmann::ordered_json;

const char* level_of(Severity severity) {
  return severity == Severity::kError     ? "error"
         : severity == Severity::kWarning ? "warning"
                                          : "note";
}

std::string as_uri(const std::string& file) {
  std::string uri = file.starts_with('/') ? "file://" : "";
  for (const char letter : file) {
    const auto byte = static_cast<unsigned char>(letter);
    const bool plain = std::isalnum(byte) != 0 || std::strchr("-._~/", letter) != nullptr;
    uri += plain ? std::string(1, letter) : fmt::format("%{:02X}", byte);
  }
  return uri;
}

class Sarif {
 public:
  Sarif(const Report& report, const RenderOptions& options) : report_(report), options_(options) {}

  ordered_json log() {
    ordered_json results = ordered_json::array();
    for (const auto& [run, findings] : judged_runs(report_)) {
      for (const auto& finding : findings) results.push_back(result(finding, run));
    }
    for (const auto& suppressed : report_.suppressed) {
      results.push_back(result(suppressed.finding, report_.runs.front()));
      results.back()["suppressions"] = {
          {{"kind", "external"}, {"justification", suppressed.reason}}};
    }
    const ordered_json run = {
        {"tool",
         {{"driver",
           {{"name", "ddp-doctor"}, {"version", report_.tool_version}, {"rules", rules()}}}}},
        {"invocations",
         {{{"executionSuccessful", report_.health() != Health::kInconclusive},
           {"toolExecutionNotifications", notifications()}}}},
        {"automationDetails",
         {{"id", "ddp-doctor/" + file_in_repository(report_.program, options_) + "/"}}},
        {"columnKind", "utf16CodeUnits"},
        {"results", results}};
    return {{"$schema",
             "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/"
             "sarif-schema-2.1.0.json"},
            {"version", "2.1.0"},
            {"runs", {run}}};
  }

 private:
  static ordered_json rules() {
    ordered_json rules = ordered_json::array();
    for (const Rule* rule : all_rules()) {
      rules.push_back({{"id", rule->code},
                       {"name", rule->name},
                       {"shortDescription", {{"text", rule->headline}}},
                       {"help",
                        {{"text", fmt::format("`ddp-doctor explain {}` says how it shows, why it "
                                              "happens, and what to change.",
                                              rule->code)}}},
                       {"defaultConfiguration", {{"level", level_of(rule->severity)}}}});
    }
    return rules;
  }

  // What was not checked is reported, not dropped.
  ordered_json notifications() const {
    ordered_json notes = ordered_json::array();
    for (const auto& [run, findings] : judged_runs(report_)) {
      if (run.health() == Health::kInconclusive)
        notes.push_back({{"level", "error"}, {"message", {{"text", verdict_of(report_)}}}});
      for (const auto& skipped : run.diagnosis.not_checked) {
        notes.push_back({{"level", "note"},
                         {"message", {{"text", "not checked: " + skipped.reason}}},
                         {"associatedRule", {{"id", skipped.rule}}}});
      }
    }
    return notes;
  }

  ordered_json location(const Finding& finding, const RunReport& run) const {
    const auto place = place_of(finding, run, options_);
    ordered_json artifact = {{"uri", as_uri(place.file)}};
    if (!place.file.starts_with('/')) artifact["uriBaseId"] = "%SRCROOT%";
    return {{"physicalLocation",
             {{"artifactLocation", artifact}, {"region", {{"startLine", place.line}}}}}};
  }

  ordered_json result(const Finding& finding, const RunReport& run) {
    const auto rules = all_rules();
    const auto rule = std::find_if(rules.begin(), rules.end(),
                                   [&](const Rule* known) { return finding.rule == known->code; });
    std::string print = fingerprint_of(finding, run, options_);
    for (int more = 2; !fingerprints_.insert(print).second; ++more)
      print = fmt::format("{}:{}", fingerprint_of(finding, run, options_), more);
    ordered_json parameters = ordered_json::array();
    for (const auto& parameter : finding.parameters) parameters.push_back(parameter.name);
    ordered_json out = {
        {"ruleId", finding.rule},
        {"ruleIndex", rule == rules.end() ? -1 : rule - rules.begin()},
        {"level", level_of(finding.severity)},
        {"message",
         {{"text", message_with_consequences(finding) + "\n" + finding.prescription.text}}},
        {"locations", {location(finding, run)}},
        {"partialFingerprints", {{"ddpDoctorFinding/v1", print}}},
        {"properties",
         {{"ranks", finding.ranks},
          {"parameters", parameters},
          {"certainty", name_of(finding.certainty)}}}};
    if (finding.first_step) out["properties"]["firstStep"] = *finding.first_step;
    return out;
  }

  const Report& report_;
  const RenderOptions& options_;
  std::set<std::string> fingerprints_;
};

}  // namespace

void render_sarif(const Report& report, const RenderOptions& options, std::ostream& out) {
  out << Sarif(report, options).log().dump(2, ' ', false, ordered_json::error_handler_t::replace)
      << '\n';
}

}  // namespace ddp_doctor
