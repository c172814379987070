// SPDX-License-Identifier: BSD-3-Clause
// For the textfile collector of Prometheus' node exporter.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lib/diagnose/rule.h"
#include "lib/report/render/place.h"
#include "lib/report/value/verdict.h"

namespace ddp_doctor {
namespace {

std::string label(const std::string& text) {
  std::string out;
  for (const char letter : text) {
    if (letter == '\\' || letter == '"') out += '\\';
    out += letter == '\n' ? ' ' : letter;
  }
  return out;
}

class Prometheus {
 public:
  Prometheus(const Report& report, const RenderOptions& options, std::ostream& out)
      : judged_(judged_runs(report)), options_(options), out_(out) {}

  void print() {
    family("healthy", "1 if every rank finished and nothing was found at warning or above.",
           [](const Judged& judged) { return judged.run.health() == Health::kHealthy ? 1 : 0; });
    family("inconclusive", "1 if the run was inconclusive.", [](const Judged& judged) {
      return judged.run.health() == Health::kInconclusive ? 1 : 0;
    });
    family("ranks", "Ranks of the run.",
           [](const Judged& judged) { return judged.run.info.world_size; });
    family("steps_examined", "Optimizer steps whose tensors were examined.",
           [](const Judged& judged) { return judged.run.steps_table.size(); });
    family("steps_out_of_sync", "Steps at which gradients or weights differed between ranks.",
           [](const Judged& judged) {
             const auto& rows = judged.run.steps_table;
             return std::count_if(rows.begin(), rows.end(), [](const StepRow& row) {
               return row.weights_differ || !row.synced.value_or(true);
             });
           });
    family("rules_not_checked", "Rules that could not be decided.",
           [](const Judged& judged) { return judged.run.diagnosis.not_checked.size(); });
    findings();
  }

 private:
  template <class Value>
  void family(const char* name, const char* help, Value value) {
    head(name, help);
    for (const auto& judged : judged_)
      out_ << fmt::format("ddp_doctor_{}{{{}}} {}\n", name, labels(judged), value(judged));
  }

  void head(const char* name, const char* help) {
    out_ << fmt::format("# HELP ddp_doctor_{0} {1}\n# TYPE ddp_doctor_{0} gauge\n", name, help);
  }

  std::string labels(const Judged& judged) const {
    return fmt::format("program=\"{}\",strategy=\"{}\"",
                       label(file_in_repository(judged.run.info.program, options_)),
                       label(judged.run.info.strategy));
  }

  // Every rule has a series, found or not, so that an alert ends when the finding does.
  void findings() {
    head("findings", "Root causes found.");
    for (const auto& judged : judged_) {
      for (const Rule* rule : all_rules()) {
        const auto found =
            std::count_if(judged.findings.begin(), judged.findings.end(),
                          [&](const Finding& finding) { return finding.rule == rule->code; });
        out_ << fmt::format("ddp_doctor_findings{{{},rule=\"{}\",name=\"{}\"}} {}\n",
                            labels(judged), rule->code, rule->name, found);
      }
    }
  }

  const std::vector<Judged> judged_;
  const RenderOptions& options_;
  std::ostream& out_;
};

}  // namespace

void render_prometheus(const Report& report, const RenderOptions& options, std::ostream& out) {
  Prometheus(report, options, out).print();
}

}  // namespace ddp_doctor
