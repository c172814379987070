// SPDX-License-Identifier: BSD-3-Clause
// A plain text table: right-aligned cells, columns as wide as their widest cell.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace ddp_doctor {

class Table {
 public:
  explicit Table(std::vector<std::string> head) : head_(std::move(head)) {}

  void add(std::vector<std::string> row) { rows_.push_back({std::move(row), false}); }
  // A row whose last cell runs to the end of the line, whatever the columns: for "raised: ..."
  // notes.
  void add_note(std::string first, std::string note) {
    rows_.push_back({{std::move(first), std::move(note)}, true});
  }

  void print(std::ostream& out) const;

 private:
  struct Row {
    std::vector<std::string> cells;
    bool note;
  };
  std::vector<std::string> head_;
  std::vector<Row> rows_;
};

}  // namespace ddp_doctor
