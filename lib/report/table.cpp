// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/table.h"

#include <fmt/format.h>

#include <algorithm>

namespace ddp_doctor {

void Table::print(std::ostream& out) const {
  std::vector<std::size_t> widths;
  for (const auto& cell : head_) widths.push_back(cell.size());
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.cells.size() && !(row.note && i > 0); ++i)
      widths[i] = std::max(widths[i], row.cells[i].size());
  }
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string text;
    for (std::size_t i = 0; i < cells.size(); ++i)
      text += fmt::format("{}{:>{}}", i == 0 ? "" : " | ", cells[i], widths[i]);
    out << text << '\n';
  };
  line(head_);
  for (const auto& row : rows_) {
    if (row.note) {
      out << fmt::format("{:>{}} | {}\n", row.cells[0], widths[0], row.cells[1]);
    } else {
      line(row.cells);
    }
  }
}

}  // namespace ddp_doctor
