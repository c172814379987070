// SPDX-License-Identifier: BSD-3-Clause
#include "lib/diagnose/loops.h"

#include <algorithm>
#include <iterator>

#include "lib/diagnose/source_lines.h"

namespace ddp_doctor {
namespace {

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
  const auto here = user_frames_outermost_first(training);
  const auto there = user_frames_outermost_first(other);
  for (std::size_t i = 0; i < std::min(here.size(), there.size()); ++i) {
    if (here[i].file != there[i].file || here[i].function != there[i].function) return {};
    if (here[i].line != there[i].line)
      return in_loop_of(lines_of(here[i].file), here[i].line, there[i].line);
  }
  return {};
}

}  // namespace ddp_doctor
