// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/compare/change.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "lib/diagnose/rule.h"
#include "lib/diagnose/source_lines.h"
#include "lib/error.h"
#include "lib/record/worker.h"

namespace ddp_doctor {
namespace {

constexpr char kAveraging[] =
    "for group in {optimizer}.param_groups:\n"
    "    for p in group[\"params\"]:\n"
    "        if p.requires_grad:\n"
    "            p.grad = torch.zeros_like(p) if p.grad is None else p.grad\n"
    "            torch.distributed.all_reduce(p.grad)\n"
    "            p.grad /= torch.distributed.get_world_size()\n";

std::optional<Change> placed(const RunReport& run, const Where& where, nlohmann::json request) {
  if (!run.place_change) return {};
  request["file"] = where.file;
  request["line"] = where.line;
  return run.place_change(request);
}

// Flags of the wrapper's constructor, as a strategy sets them; null: the default.
nlohmann::json flags_of(const std::string& strategy) {
  if (strategy == "ddp-find-unused")
    return {{"find_unused_parameters", "True"}, {"static_graph", nullptr}};
  if (strategy == "ddp-static-graph")
    return {{"find_unused_parameters", nullptr}, {"static_graph", "True"}};
  if (strategy == "ddp") return {{"find_unused_parameters", nullptr}, {"static_graph", nullptr}};
  if (strategy == "broadcast-buffers") return {{"broadcast_buffers", nullptr}};
  return {};
}

std::optional<Change> change_of_wrapper(const RunReport& run, const Where& where,
                                        const nlohmann::json& flags) {
  auto change = placed(run, where, {{"kind", "flags"}, {"flags", flags}});
  if (!change || change->text.empty()) return {};
  change->text += " here";
  return change;
}

// The model is wrapped before the optimizer is constructed.
std::optional<Change> change_by_wrapping(const RunReport& run, const Where& where) {
  auto change = placed(run, where, {{"kind", "model"}});
  if (change)
    change->text = fmt::format(
        "before this line: {0} = torch.nn.parallel.DistributedDataParallel({0})", change->text);
  return change;
}

// ddp.module(x) becomes ddp(x).
std::optional<Change> change_of_forward(const RunReport& run, const Where& where) {
  auto change = placed(run, where, {{"kind", "module"}});
  if (change)
    change->text = change->after.empty()
                       ? "call the wrapper here; move what this line computes into the wrapped "
                         "module's forward"
                       : "call the wrapper here, not the module inside it";
  return change;
}

std::optional<Change> change_before_step(const RunReport& run, const Where& where) {
  auto change = placed(run, where, {{"kind", "average"}, {"lines", kAveraging}});
  if (change)
    change->text =
        "average the gradients over all ranks: after the last backward, and before anything "
        "unscales, clips or steps";
  return change;
}

// Where a library makes the wrapper, its own settings decide.
std::optional<Change> setting_of_library(const Where& where, const std::string& strategy) {
  const auto through = [&](const char* package) {
    return std::any_of(where.via.begin(), where.via.end(),
                       [&](const auto& place) { return place.starts_with(package); });
  };
  const bool finds = strategy == "ddp-find-unused";
  if (strategy == "broadcast-buffers") return {};
  std::string text;
  if (through("transformers/")) {
    text = strategy == "ddp-static-graph"
               ? "give the Trainer an Accelerator with "
                 "DistributedDataParallelKwargs(static_graph=True), or in newer versions of "
                 "transformers set TrainingArguments(ddp_static_graph=True)"
               : fmt::format("TrainingArguments(ddp_find_unused_parameters={})",
                             finds ? "True" : "False");
  } else if (through("accelerate/")) {
    text = fmt::format("Accelerator(kwargs_handlers=[DistributedDataParallelKwargs({})])",
                       finds                            ? "find_unused_parameters=True"
                       : strategy == "ddp-static-graph" ? "static_graph=True"
                                                        : "find_unused_parameters=False");
  } else {
    return {};
  }
  return Change{where.file, where.line, "", "", text};
}

bool averages_over_all(const std::string& strategy) {
  return strategy.starts_with("allreduce") && !strategy.starts_with(kAllReduceDimension);
}

// What the strategy "ddp" would set is set already.
bool has_default_flags(const RunReport& run) {
  return !run.ddp.empty() &&
         std::none_of(run.ddp.begin(), run.ddp.end(), [](const DdpField& field) {
           return (field.key == "find_unused_parameters" || field.key == "static_graph") &&
                  field.value != "0";
         });
}

std::optional<Change> change_by(const std::string& strategy, const Finding& finding,
                                const RunReport& run) {
  // A program that averages by hand would do so twice: its own averaging is to be completed.
  if (averages_over_all(strategy) && finding.evidence.value("hand_written", false)) return {};
  const auto step = run.stepped_at(finding.first_step);
  if (averages_over_all(strategy) && step) return change_before_step(run, *step);
  if (const auto first = run.stepped_at(); strategy == "broadcast-init" && first)
    return Change{first->file, first->line, "", "",
                  "once before the first step: for t in model.state_dict().values(): "
                  "torch.distributed.broadcast(t, 0)"};
  const auto flags = flags_of(strategy);
  if (flags.empty() || (strategy == "ddp" && has_default_flags(run))) return {};
  for (const auto& place : {finding.where, run.wrap_place}) {  // the finding's own first
    if (!place) continue;
    if (auto change = change_of_wrapper(run, *place, flags)) return change;
  }
  return run.wrap_place ? setting_of_library(*run.wrap_place, strategy) : std::nullopt;
}

}  // namespace

bool fits(const std::string& strategy, const RunReport& run) {
  return run.plain_data_parallel || !averages_over_all(strategy);
}

std::optional<Change> change_for(const Finding& finding, const RunReport& run) {
  if (rule_of(finding).cured_by_wrapper_call)
    return finding.where ? change_of_forward(run, *finding.where) : std::nullopt;
  if (finding.where && finding.evidence.value("kind", "") == "never-synchronized")
    return change_by_wrapping(run, *finding.where);
  const auto& prescription = finding.prescription;
  std::vector<std::string> strategies = {prescription.strategy};
  if (finding.proof && finding.proof->cured) return change_by(prescription.strategy, finding, run);
  for (const auto* more : {&prescription.alternatives, &prescription.fallbacks})
    strategies.insert(strategies.end(), more->begin(), more->end());
  for (const auto& strategy : strategies) {
    if (!fits(strategy, run)) continue;
    if (auto change = change_by(strategy, finding, run)) return change;
  }
  return {};
}

std::string apply(const Change& change) {
  const auto lines = lines_of(change.file);
  std::vector<std::string> before;
  std::istringstream in(change.before);
  for (std::string line; std::getline(in, line);) before.push_back(line);
  const auto at = static_cast<std::size_t>(change.line - 1);
  const bool known = !before.empty() && at + before.size() <= lines.size() &&
                     std::equal(before.begin(), before.end(), lines.begin() + change.line - 1);
  if (!known)
    throw Error(fmt::format("{}:{}: changed since it was read", change.file, change.line));
  std::string text;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i == at) text += change.after + '\n';
    if (i < at || i >= at + before.size()) text += lines[i] + '\n';
  }
  return text;
}

std::string diff_of(const Change& change, const std::string& indent) {
  std::string diff;
  for (const auto& [mark, text] : {std::pair{'-', change.before}, {'+', change.after}}) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) diff += indent + mark + line + '\n';
  }
  return diff;
}

}  // namespace ddp_doctor
