// SPDX-License-Identifier: BSD-3-Clause
// A plain text table: right-aligned cells, columns as wide as their widest cell.
#pragma once

#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace ddp_doctor {

class Table {
 public:
  explicit Table(std::vector<std::string> head) : head_(std::move(head)) {}

  void add(std::vector<std::string> row) { rows_.push_back({Kind::kCells, std::move(row)}); }
  // A row whose second cell runs to the end of the line, where it is cut: "raised: ...".
  void add_note(std::string first, std::string note) {
    rows_.push_back({Kind::kNote, {std::move(first), std::move(note)}});
  }
  // A line of its own, of what the rows below it are.
  void add_heading(std::string text) { rows_.push_back({Kind::kHeading, {std::move(text)}}); }

  void print(std::ostream& out) const;

 private:
  enum class Kind { kCells, kNote, kHeading };
  struct Row {
    Kind kind;
    std::vector<std::string> cells;
  };
  std::vector<std::string> head_;
  std::vector<Row> rows_;
};

}  // namespace ddp_doctor
