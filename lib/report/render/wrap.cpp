// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/render/wrap.h"

#include <fmt/format.h>

#include <algorithm>

namespace ddp_doctor {

void print_wrapped(std::ostream& out, std::string_view text, std::size_t first,
                   std::size_t others) {
  std::size_t indent = first;
  std::string line(indent, ' ');
  std::size_t start = 0;
  while (start < text.size()) {
    std::size_t end = text.find(' ', start);
    if (end == std::string_view::npos) end = text.size();
    const auto word = text.substr(start, end - start);
    if (line.size() > indent && line.size() + 1 + word.size() > kTextWidth) {
      out << line << '\n';
      indent = others;
      line.assign(indent, ' ');
    }
    if (line.size() > indent) line += ' ';
    line += word;
    start = end + 1;
  }
  if (line.size() > indent) out << line << '\n';
}

void print_columns(std::ostream& out, const std::vector<std::string>& entries) {
  constexpr std::size_t kMaxWidth = 48;
  constexpr std::size_t kGap = 2;
  std::vector<std::string> small, large;
  for (const auto& entry : entries) (entry.size() > kMaxWidth ? large : small).push_back(entry);
  for (std::size_t columns = small.size(); columns > 0; --columns) {
    const std::size_t rows = (small.size() + columns - 1) / columns;
    std::vector<std::size_t> widths;
    for (std::size_t i = 0; i < small.size(); ++i) {
      if (i % rows == 0) widths.push_back(0);
      widths.back() = std::max(widths.back(), small[i].size());
    }
    std::size_t total = kGap * (widths.size() - 1);
    for (const std::size_t width : widths) total += width;
    if (total > kTextWidth && columns > 1) continue;
    for (std::size_t row = 0; row < rows; ++row) {
      std::string line;
      for (std::size_t i = row; i < small.size(); i += rows) {
        const bool last = i + rows >= small.size();
        line += last ? small[i] : fmt::format("{:<{}}", small[i], widths[i / rows] + kGap);
      }
      out << line << '\n';
    }
    break;
  }
  for (const auto& entry : large) print_wrapped(out, entry, 0, 2);
}

std::string shortened(const std::string& text, std::size_t max_size) {
  if (text.size() <= max_size) return text;
  const std::size_t space = text.rfind(' ', max_size - 3);
  return text.substr(0, space == std::string::npos ? max_size - 3 : space) + "...";
}

}  // namespace ddp_doctor
