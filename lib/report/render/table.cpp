// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/render/table.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/report/render/wrap.h"

namespace ddp_doctor {

void Table::print(std::ostream& out) const {
  std::vector<std::size_t> widths;
  for (const auto& cell : head_) widths.push_back(cell.size());
  for (const auto& row : rows_) {
    if (row.kind == Kind::kHeading) continue;
    const std::size_t columns = row.kind == Kind::kNote ? 1 : row.cells.size();
    for (std::size_t i = 0; i < columns; ++i) widths[i] = std::max(widths[i], row.cells[i].size());
  }
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string text;
    for (std::size_t i = 0; i < cells.size(); ++i)
      text += fmt::format("{}{:>{}}", i == 0 ? "" : " | ", cells[i], widths[i]);
    out << text << '\n';
  };
  line(head_);
  for (const auto& row : rows_) {
    if (row.kind == Kind::kCells) {
      line(row.cells);
    } else if (row.kind == Kind::kHeading) {
      out << row.cells[0] << '\n';
    } else {
      out << fmt::format("{:>{}} | {}\n", row.cells[0], widths[0],
                         shortened(row.cells[1], kTextWidth - widths[0] - 3));
    }
  }
}

}  // namespace ddp_doctor
