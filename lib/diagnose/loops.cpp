// SPDX-License-Identifier: BSD-3-Clause
#include "lib/diagnose/loops.h"

#include <algorithm>
#include <cctype>
#include <iterator>

#include "lib/diagnose/source_lines.h"

namespace ddp_doctor {
namespace {

constexpr const char* kWordsOfRank[] = {"rank", "main", "master", "leader"};

// Columns before the first letter; nothing for blank lines and comments, whose indentation is
// arbitrary.
std::optional<std::size_t> indentation(const std::string& line) {
  const auto first = line.find_first_not_of(" \t");
  if (first == std::string::npos || line[first] == '#') return {};
  return first;
}

bool begins_loop(const std::string& line) {
  const auto first = line.find_first_not_of(" \t");
  return first != std::string::npos &&
         (line.compare(first, 4, "for ") == 0 || line.compare(first, 6, "while ") == 0 ||
          line.compare(first, 10, "async for ") == 0);
}

std::vector<Frame> user_frames_outermost_first(const std::vector<Frame>& stack) {
  std::vector<Frame> frames;
  std::copy_if(stack.rbegin(), stack.rend(), std::back_inserter(frames),
               [](const Frame& frame) { return frame.of_the_user(); });
  return frames;
}

// Headers of the blocks that a line is in, innermost first, up to its function.
std::vector<std::string> headers_of(const std::vector<std::string>& source, int line) {
  std::vector<std::string> headers;
  if (line < 1 || line > static_cast<int>(source.size())) return headers;
  const auto at = [&](int number) -> const std::string& {
    return source[static_cast<std::size_t>(number - 1)];
  };
  auto min_indent = indentation(at(line));
  for (int number = line - 1; number > 0 && min_indent && *min_indent > 0; --number) {
    const auto indent = indentation(at(number));
    if (!indent || *indent >= *min_indent) continue;
    min_indent = indent;
    headers.push_back(at(number).substr(*indent));
    if (headers.back().starts_with("def ") || headers.back().starts_with("async def ")) break;
  }
  return headers;
}

// A word of an identifier, as in `self.is_main_process`.
bool has_word(const std::string& text, const std::string& word) {
  const auto letter = [&](std::size_t at) {
    return at < text.size() && std::isalpha(static_cast<unsigned char>(text[at])) != 0;
  };
  for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    if ((at == 0 || !letter(at - 1)) && !letter(at + word.size())) return true;
  }
  return false;
}

// Of one rank, or some: `if rank != -1` and `if rank is not None` ask whether the job is
// distributed.
bool asks_for_rank(const std::string& header) {
  if (!header.starts_with("if ") && !header.starts_with("elif ")) return false;
  const auto has = [&](const char* text) { return header.find(text) != std::string::npos; };
  if (has("-1") || has(">= 0") || has("None")) return false;
  return std::any_of(std::begin(kWordsOfRank), std::end(kWordsOfRank),
                     [&](const char* word) { return has_word(header, word); });
}

// The user's frames of both, outermost first, from the function on in which they part.
struct Parting {
  std::vector<Frame> training, other;
};
std::optional<Parting> parting_of(const std::vector<Frame>& training,
                                  const std::vector<Frame>& other) {
  const auto here = user_frames_outermost_first(training);
  const auto there = user_frames_outermost_first(other);
  for (std::size_t i = 0; i < std::min(here.size(), there.size()); ++i) {
    if (here[i].file != there[i].file || here[i].function != there[i].function) return {};
    const auto from = static_cast<std::ptrdiff_t>(i);
    if (here[i].line != there[i].line)
      return Parting{{here.begin() + from, here.end()}, {there.begin() + from, there.end()}};
  }
  return {};
}

}  // namespace

std::optional<bool> in_loop_of(const std::vector<std::string>& source, int line, int other) {
  const auto count = static_cast<int>(source.size());
  if (line < 1 || other < 1 || line > count || other > count) return {};
  const auto at = [&](int number) -> const std::string& {
    return source[static_cast<std::size_t>(number - 1)];
  };
  auto min_indent = indentation(at(line));
  if (!min_indent) return {};
  for (int header = line - 1; header > 0; --header) {
    const auto indent = indentation(at(header));
    if (!indent || *indent >= *min_indent) continue;
    min_indent = indent;
    if (!begins_loop(at(header))) continue;
    if (other <= header) return false;
    for (int number = header + 1; number <= other; ++number) {
      const auto inner = indentation(at(number));
      if (inner && *inner <= *indent) return false;
    }
    return true;
  }
  return {};
}

std::optional<bool> in_loop_of(const std::vector<Frame>& training,
                               const std::vector<Frame>& other) {
  const auto parting = parting_of(training, other);
  if (!parting) return {};
  const auto& here = parting->training.front();
  return in_loop_of(lines_of(here.file), here.line, parting->other.front().line);
}

std::optional<bool> for_some_ranks(const std::vector<std::string>& source, int line, int other) {
  const auto there = headers_of(source, other);
  if (std::any_of(there.begin(), there.end(), asks_for_rank)) return true;
  const auto here = headers_of(source, line);
  const auto function = [](const std::vector<std::string>& headers) {
    return headers.empty() || headers.back().find("def ") == std::string::npos ? std::string()
                                                                               : headers.back();
  };
  if (function(here) == function(there)) return in_loop_of(source, line, other);
  // The function that has the loop is called earlier where the other line is.
  if (std::none_of(here.begin(), here.end(), begins_loop)) return {};
  std::string name = function(here);
  if (name.empty()) return {};  // the program itself trains, and calls the other function
  name = name.substr(name.find("def ") + 4);
  name = name.substr(0, name.find('(')) + "(";
  for (int number = other - 1; number > 0; --number) {
    const auto& text = source[static_cast<std::size_t>(number - 1)];
    if (text.find("def ") != std::string::npos) return {};
    if (text.find(name) != std::string::npos) return false;
  }
  return {};
}

bool under_rank_condition(const std::vector<Frame>& training, const std::vector<Frame>& other) {
  const auto parting = parting_of(training, other);
  return parting && std::any_of(parting->other.begin(), parting->other.end(), [](const Frame& at) {
           const auto headers = headers_of(lines_of(at.file), at.line);
           return std::any_of(headers.begin(), headers.end(), asks_for_rank);
         });
}

bool returned_from_loop_of(const std::vector<Frame>& training, const std::vector<Frame>& other) {
  const auto parting = parting_of(training, other);
  if (!parting || parting->other.front().line < parting->training.front().line) return false;
  const auto& inner = parting->training;
  return std::any_of(inner.begin() + 1, inner.end(), [](const Frame& at) {
    const auto headers = headers_of(lines_of(at.file), at.line);
    return std::any_of(headers.begin(), headers.end(), begins_loop);
  });
}

}  // namespace ddp_doctor
