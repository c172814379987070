// SPDX-License-Identifier: BSD-3-Clause
#include "tool/bisect/model_bisection.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "lib/diagnose/causes.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

constexpr std::size_t kMaxTrials = 32;

bool about_unused(const Finding& finding) {
  return rule_of(finding).names_unused != NamesUnused::kNone ||
         finding.evidence.value("kind", "") == "unfinished-reduction";
}

// Harmful or not: with find_unused_parameters=True it is advice.
bool has_unused(const RunReport& run) {
  return !unused_modules(run).empty() ||
         find_finding(run.diagnosis.findings, about_unused) != nullptr;
}

// "body.0.weight" below "body": "body.0".
std::set<std::string> parts_of(const RunReport& run, const std::string& module) {
  std::set<std::string> parts;
  const std::string prefix = module.empty() ? "" : module + ".";
  for (const auto& tensor : run.tensors) {
    if (tensor.kind != "parameter" || !tensor.trainable || !tensor.name.starts_with(prefix))
      continue;
    parts.insert(tensor.name.substr(0, tensor.name.find('.', prefix.size())));
  }
  return parts;
}

class Narrowing {
 public:
  explicit Narrowing(const RunFrozen& run) : run_(run), as_is_(run({})) {}

  ModelBisected result() {
    result_.program = as_is_.info.program;
    result_.outcome = as_is_.outcome;
    result_.unused = has_unused(as_is_);
    std::vector<std::string> seen;
    for (const auto& group : unused_modules(as_is_)) {
      result_.observed.push_back(describe(group, as_is_));
      seen.insert(seen.end(), group.names.begin(), group.names.end());
    }
    if (!result_.unused) return std::move(result_);
    // Freezing the whole model would train nothing.
    if (!seen.empty() && std::find(seen.begin(), seen.end(), "") == seen.end() && fixes(seen)) {
      result_.smallest = without_needless(seen);
    } else {
      result_.smallest = from_the_top("");
    }
    return std::move(result_);
  }

 private:
  bool fixes(const std::vector<std::string>& frozen) {
    if (result_.trials.size() == kMaxTrials) return false;
    const RunReport run = run_(frozen);
    const bool clean = run.completed && !has_unused(run);
    result_.trials.push_back({frozen, clean, run.outcome});
    return clean;
  }

  std::vector<std::string> without_needless(std::vector<std::string> names) {
    for (std::size_t i = 0; names.size() > 1 && i < names.size();) {
      auto fewer = names;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
      if (fixes(fewer)) {
        names = fewer;
      } else {
        ++i;
      }
    }
    return names;
  }

  // One module that is enough, or a smaller one inside it.
  std::optional<std::vector<std::string>> from_the_top(const std::string& module) {
    const auto parts = parts_of(as_is_, module);
    if (parts.size() < 2 && module.empty()) return {};
    for (const auto& part : parts) {
      if (!fixes({part})) continue;
      const auto smaller = from_the_top(part);
      return smaller ? smaller : std::vector{part};
    }
    return {};
  }

  const RunFrozen& run_;
  const RunReport as_is_;
  ModelBisected result_;
};

}  // namespace

ModelBisected bisect_model(const RunFrozen& run) { return Narrowing(run).result(); }

void render_text(const ModelBisected& bisected, std::ostream& out) {
  out << fmt::format("{}: {}\n", bisected.program, bisected.outcome);
  if (!bisected.observed.empty()) out << "\nUnused\n";
  for (const auto& line : bisected.observed) out << "  " << line << '\n';
  if (!bisected.trials.empty()) out << "\nFrozen before the model was wrapped\n";
  for (const auto& trial : bisected.trials)
    out << fmt::format("  {}: {}\n", fmt::join(trial.frozen, ", "),
                       trial.clean ? "completes, nothing is unused" : trial.outcome);
  out << '\n';
  if (!bisected.unused) {
    out << "Verdict: no parameter is unused\n";
  } else if (!bisected.smallest) {
    out << "Verdict: inconclusive: freezing no module that was tried makes the program complete "
           "without unused parameters\n";
  } else {
    out << fmt::format(
        "Verdict: {} {} the unused parameters: with this set frozen, the program completes\n",
        fmt::join(*bisected.smallest, ", "),
        bisected.smallest->size() == 1 ? "explains" : "explain");
  }
}

void render_json(const ModelBisected& bisected, std::ostream& out) {
  using nlohmann::ordered_json;
  ordered_json json = {{"schema_version", 1},
                       {"program", bisected.program},
                       {"outcome", bisected.outcome},
                       {"unused", bisected.unused},
                       {"observed", bisected.observed},
                       {"trials", ordered_json::array()},
                       {"smallest", nullptr}};
  for (const auto& trial : bisected.trials)
    json["trials"].push_back(
        {{"frozen", trial.frozen}, {"clean", trial.clean}, {"outcome", trial.outcome}});
  if (bisected.smallest) json["smallest"] = *bisected.smallest;
  out << json.dump(2, ' ', false, ordered_json::error_handler_t::replace) << '\n';
}

}  // namespace ddp_doctor
