// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/compare/change.h"

#include <fmt/format.h>

#include <algorithm>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "lib/diagnose/rule.h"
#include "lib/diagnose/source_lines.h"
#include "lib/error.h"
#include "lib/report/compare/change_before_step.h"

namespace ddp_doctor {
namespace {

constexpr int kLinesBefore = 3;  // a call may begin above the line that Python names

// Flags of the wrapper's constructor, as a strategy sets them.
struct Flag {
  const char* name;
  const char* value;
};

std::vector<Flag> flags_of(const std::string& strategy) {
  if (strategy == "ddp-find-unused")
    return {{"find_unused_parameters", "True"}, {"static_graph", nullptr}};
  if (strategy == "ddp-static-graph")
    return {{"find_unused_parameters", nullptr}, {"static_graph", "True"}};
  if (strategy == "ddp") return {{"find_unused_parameters", nullptr}, {"static_graph", nullptr}};
  if (strategy == "broadcast-buffers") return {{"broadcast_buffers", nullptr}};
  return {};
}

// The end of the call whose parenthesis opens at `open`, itself included; npos if it is not here.
std::size_t end_of_call(const std::string& text, std::size_t open) {
  int depth = 0;
  char quote = 0;
  for (std::size_t i = open; i < text.size(); ++i) {
    const char letter = text[i];
    if (quote != 0) {
      if (letter == quote) quote = 0;
    } else if (letter == '"' || letter == '\'') {
      quote = letter;
    } else if (letter == '(' || letter == '[' || letter == '{') {
      ++depth;
    } else if ((letter == ')' || letter == ']' || letter == '}') && --depth == 0) {
      return i;
    }
  }
  return std::string::npos;
}

// Where the argument that begins at `begin` ends: at its comma, or at the end.
std::size_t end_of_argument(const std::string& arguments, std::size_t begin) {
  int depth = 0;
  for (std::size_t i = begin; i < arguments.size(); ++i) {
    const char letter = arguments[i];
    if (letter == '(' || letter == '[' || letter == '{') ++depth;
    if (letter == ')' || letter == ']' || letter == '}') --depth;
    if (letter == ',' && depth == 0) return i;
  }
  return arguments.size();
}

// Sets the flag among the arguments of a call, or removes it to restore the default. False if its
// value is unknown: an expression, **kwargs.
bool set_flag(std::string& arguments, const Flag& flag) {
  const std::regex given(fmt::format(R"((,?\s*)\b{}\s*=\s*)", flag.name));
  std::smatch match;
  if (std::regex_search(arguments, match, given)) {
    const auto begin = static_cast<std::size_t>(match.position());
    const auto value = begin + static_cast<std::size_t>(match.length());
    const auto end = end_of_argument(arguments, value);
    const std::string word = arguments.substr(value, end - value);
    const auto last = word.find_last_not_of(" \t\n");
    if (word.substr(0, last + 1) != "True" && word.substr(0, last + 1) != "False") return false;
    const std::string separator = match[1];
    arguments.replace(
        begin, value + last + 1 - begin,
        flag.value != nullptr ? fmt::format("{}{}={}", separator, flag.name, flag.value) : "");
    return true;
  }
  if (flag.value == nullptr) return true;
  if (arguments.find("**") != std::string::npos) return false;
  const auto last = arguments.find_last_not_of(" \t\n");
  const bool empty = last == std::string::npos;
  const bool comma = !empty && arguments[last] == ',';
  arguments.insert(empty ? 0 : last + 1,
                   fmt::format("{}{}={}", empty || comma ? " " : ", ", flag.name, flag.value));
  return true;
}

std::optional<Change> change_of_wrapper(const Where& where, const std::vector<Flag>& flags) {
  const auto lines = lines_of(where.file);
  static const std::regex call(R"(\b(DistributedDataParallel|DDP)\s*\()");
  for (int line = where.line; line > std::max(0, where.line - kLinesBefore); --line) {
    if (line > static_cast<int>(lines.size())) continue;
    std::string text = lines[static_cast<std::size_t>(line - 1)];
    std::smatch match;
    if (!std::regex_search(text, match, call)) continue;
    const auto open = static_cast<std::size_t>(match.position() + match.length() - 1);
    std::size_t last = static_cast<std::size_t>(line - 1);
    auto close = end_of_call(text, open);
    while (close == std::string::npos && last + 1 < lines.size() && text.size() < 2000) {
      text += "\n" + lines[++last];
      close = end_of_call(text, open);
    }
    if (close == std::string::npos) return {};
    std::string arguments = text.substr(open + 1, close - open - 1);
    std::string words;
    bool possible = true;
    for (const auto& flag : flags) {
      const std::string before = arguments;
      const bool set = set_flag(arguments, flag);
      possible = possible && set;
      if (set && arguments == before) continue;
      words += words.empty() ? "" : ", ";
      words += flag.value != nullptr ? fmt::format("set {}={}", flag.name, flag.value)
                                     : fmt::format("remove {}", flag.name);
    }
    if (words.empty()) return {};
    const std::string after = text.substr(0, open + 1) + arguments + text.substr(close);
    return Change{where.file, line, possible ? text : "", possible ? after : "", words + " here"};
  }
  return {};
}

// The model is wrapped before the optimizer is constructed.
std::optional<Change> change_by_wrapping(const Where& where) {
  const auto lines = lines_of(where.file);
  if (where.line > static_cast<int>(lines.size()) || where.line < 1) return {};
  const std::string& text = lines[static_cast<std::size_t>(where.line - 1)];
  static const std::regex given(R"(([A-Za-z_][\w.]*)\.parameters\()");
  std::smatch match;
  const std::string model = std::regex_search(text, match, given) ? match[1].str() : "model";
  return Change{where.file, where.line, text, "",
                fmt::format("before this line: {0} = "
                            "torch.nn.parallel.DistributedDataParallel({0})",
                            model)};
}

// ddp.module(x) becomes ddp(x).
std::optional<Change> change_of_forward(const Where& where) {
  const auto lines = lines_of(where.file);
  if (where.line > static_cast<int>(lines.size()) || where.line < 1) return {};
  const std::string& text = lines[static_cast<std::size_t>(where.line - 1)];
  static const std::regex bypass(R"(\.module\()");
  const std::string after = std::regex_replace(text, bypass, "(");
  if (after != text)
    return Change{where.file, where.line, text, after,
                  "call the wrapper here, not the module inside it"};
  return Change{where.file, where.line, "", "",
                "call the wrapper here; move what this line computes into the wrapped module's "
                "forward"};
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

bool averages_over_all(const std::string& strategy) { return strategy.starts_with("allreduce"); }

std::optional<Change> change_by(const std::string& strategy, const Finding& finding,
                                const RunReport& run) {
  // A program that averages by hand would do so twice: its own averaging is to be completed.
  if (averages_over_all(strategy) && finding.evidence.value("hand_written", false)) return {};
  if (averages_over_all(strategy) && run.step_place)
    return change_before_step(run.step_place->file, run.step_place->line);
  if (strategy == "broadcast-init" && run.step_place)
    return Change{run.step_place->file, run.step_place->line, "", "",
                  "once before the first step: for t in model.state_dict().values(): "
                  "torch.distributed.broadcast(t, 0)"};
  const auto flags = flags_of(strategy);
  if (flags.empty()) return {};
  for (const auto& place : {finding.where, run.wrap_place}) {  // the finding's own first
    if (!place) continue;
    if (auto change = change_of_wrapper(*place, flags)) return change;
  }
  return run.wrap_place ? setting_of_library(*run.wrap_place, strategy) : std::nullopt;
}

}  // namespace

bool fits(const std::string& strategy, const RunReport& run) {
  return run.plain_data_parallel || !averages_over_all(strategy);
}

std::optional<Change> change_for(const Finding& finding, const RunReport& run) {
  if (rule_of(finding).cured_by_wrapper_call)
    return finding.where ? change_of_forward(*finding.where) : std::nullopt;
  if (finding.where && finding.evidence.value("kind", "") == "never-synchronized")
    return change_by_wrapping(*finding.where);
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
