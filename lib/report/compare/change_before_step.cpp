// SPDX-License-Identifier: BSD-3-Clause
// The text of the loop is read upwards from the step: statements of its block, then of the blocks
// around it, up to the one that holds the last backward. What is indented deeper belongs to the
// statement above it.
#include "lib/report/compare/change_before_step.h"

#include <fmt/format.h>

#include <regex>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/diagnose/source_lines.h"

namespace ddp_doctor {
namespace {

constexpr const char* kWords =
    "average the gradients over all ranks: after the last backward, and before anything unscales, "
    "clips or steps";

std::string code_of(const std::string& line) {
  const auto comment = line.find(" #");
  return line.substr(0, line.starts_with('#') ? 0 : comment);
}

bool runs_backward(const std::string& code) {
  static const std::regex call(R"(\b\w*backward\s*\()");
  return std::regex_search(code, call);
}

// May change gradients.
bool touches_gradients(const std::string& code) {
  static const std::regex call(R"(\.grad\b|\bunscale_|clip|\.step\s*\(|zero_grad)");
  return std::regex_search(code, call);
}

bool begins_block(const std::string& code) {
  static const std::regex word(
      R"(^\s*(if|elif|else|for|while|with|try|except|finally|def|class|async|match|case)\b)");
  return std::regex_search(code, word);
}

// "else:" or a closing bracket belong to the statement above.
bool continues(const std::string& code) {
  static const std::regex word(R"(^\s*(elif\b|else\b|except\b|finally\b|[)\]}]))");
  return std::regex_search(code, word);
}

std::size_t indent_of(const std::string& line) { return line.find_first_not_of(" \t"); }

// Statements on one line, as "a(); b()".
std::vector<std::string> statements_of(const std::string& code) {
  std::vector<std::string> statements(1);
  int depth = 0;
  char quote = 0;
  for (const char letter : code) {
    if (quote != 0) {
      if (letter == quote) quote = 0;
    } else if (letter == '"' || letter == '\'') {
      quote = letter;
    } else if (letter == '(' || letter == '[' || letter == '{') {
      ++depth;
    } else if (letter == ')' || letter == ']' || letter == '}') {
      --depth;
    }
    if (letter == ';' && depth == 0 && quote == 0) {
      statements.emplace_back();
    } else if (!statements.back().empty() || letter != ' ' || statements.size() == 1) {
      statements.back() += letter;
    }
  }
  return statements;
}

std::string joined(const std::vector<std::string>& statements, std::size_t from, std::size_t to) {
  std::string text;
  for (std::size_t i = from; i < to; ++i) text += (i == from ? "" : "; ") + statements[i];
  return text;
}

std::string averaging(const std::string& pad, const std::string& optimizer) {
  return fmt::format(
      "{0}for group in {1}.param_groups:\n"
      "{0}    for p in group[\"params\"]:\n"
      "{0}        if p.requires_grad:\n"
      "{0}            p.grad = torch.zeros_like(p) if p.grad is None else p.grad\n"
      "{0}            torch.distributed.all_reduce(p.grad)\n"
      "{0}            p.grad /= torch.distributed.get_world_size()\n",
      pad, optimizer);
}

// The name of the optimizer that steps there: scaler.step(optimizer), optimizer.step().
std::string optimizer_in(const std::string& code) {
  static const std::regex step(R"(([\w.\[\]]+)\.step\(\s*([\w.\[\]]*)\s*\))");
  std::smatch match;
  if (!std::regex_search(code, match, step)) return {};
  return match[2].length() > 0 ? match[2] : match[1];
}

// The line before which the averaging is to stand, as an index; or in the midst of a line, after
// that many of its statements.
struct Place {
  std::size_t line = 0;
  std::size_t statements = 0;
};

// After the last backward among the statements of one line; nothing if none of them is one.
std::optional<std::size_t> after_backward(const std::vector<std::string>& statements,
                                          std::size_t count) {
  for (std::size_t i = count; i-- > 0;) {
    if (runs_backward(statements[i])) return i + 1;
  }
  return {};
}

std::optional<Place> place_before(const std::vector<std::string>& lines, std::size_t step) {
  const std::string code = code_of(lines[step]);
  if (begins_block(code) || continues(code)) return {};
  const auto here = statements_of(code);
  std::size_t count = 0;
  while (count < here.size() && optimizer_in(here[count]).empty()) ++count;
  if (const auto after = after_backward(here, count)) return Place{step, *after};

  std::size_t level = indent_of(lines[step]);
  std::size_t below = step;      // the statement below, of the same block
  std::optional<Place> inside;   // the first line of the step's block, once that was left
  bool deeper_backward = false;  // in what belongs to the statement above
  for (std::size_t i = step; i-- > 0;) {
    const std::string above = code_of(lines[i]);
    const std::size_t indent = indent_of(above);
    if (indent == std::string::npos) continue;
    if (indent > level || (indent == level && continues(above))) {
      deeper_backward = deeper_backward || runs_backward(above);
      if (inside && touches_gradients(above) && !deeper_backward) return {};
      continue;
    }
    if (indent < level) {  // the head of this block
      static const std::regex passes(R"(^\s*(if|with|try)\b)");
      if (!std::regex_search(above, passes)) return {};
      if (!inside) inside = Place{below, 0};
      level = indent;
      below = i;
      deeper_backward = false;
      continue;
    }
    if (deeper_backward) return inside ? inside : Place{below, 0};
    const auto statements = statements_of(above);
    if (begins_block(above)) {
      if (runs_backward(above)) return inside ? inside : Place{below, 0};
    } else if (const auto after = after_backward(statements, statements.size())) {
      if (*after == statements.size()) return inside ? inside : Place{below, 0};
      return inside ? std::nullopt : std::optional(Place{i, *after});
    }
    if (inside && touches_gradients(above)) return {};
    below = i;
  }
  return {};
}

}  // namespace

std::optional<Change> change_before_step(const std::string& file, int line) {
  const auto lines = lines_of(file);
  if (line < 1 || line > static_cast<int>(lines.size())) return {};
  const auto step = static_cast<std::size_t>(line - 1);
  const std::string optimizer = optimizer_in(code_of(lines[step]));
  if (optimizer.empty()) return {};
  const auto place = place_before(lines, step);
  if (!place || optimizer.find("closure") != std::string::npos)
    return Change{file, line, "", "", kWords};
  const std::string& before = lines[place->line];
  const std::string pad = before.substr(0, indent_of(before));
  std::string after = averaging(pad, optimizer) + before;
  if (place->statements > 0) {
    const auto statements = statements_of(before);
    after = joined(statements, 0, place->statements) + '\n' + averaging(pad, optimizer) + pad +
            joined(statements, place->statements, statements.size());
  }
  return Change{file, static_cast<int>(place->line) + 1, before, after, kWords};
}

}  // namespace ddp_doctor
