// SPDX-License-Identifier: BSD-3-Clause
// A pasted log, separated by rank.
//
// Launchers put a label before each line: [rank1]: (PyTorch 2.3 and later), [default1]: (torchrun's
// tee, which counts the ranks of one node), [1,1]<stderr>: (mpirun), 1: (srun -l). Lines of several
// ranks interleave, so a message of more than one line can be read only after they are separated.
// Terminals, mails and web pages wrap lines: a stream has its lines joined by single spaces, so
// that searches ignore line breaks.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddp_doctor {

struct LogStream {
  std::optional<int> rank;   // from the label; nothing for lines without one
  bool of_one_node = false;  // the label counts the ranks of one node only
  std::string text;          // without labels, colours and control characters

  struct Line {
    std::size_t begin;   // in `text`
    std::size_t number;  // in the pasted text, counted from 1
  };
  std::vector<Line> lines;

  // Index of the line that `position` is in.
  std::size_t line_at(std::size_t position) const;
  std::string_view line(std::size_t index) const;
  std::size_t number_at(std::size_t position) const { return lines[line_at(position)].number; }
};

struct PastedLog {
  std::vector<LogStream> streams;  // without a label first, then by rank
  std::size_t lines = 0;
};

// Accepts anything: empty text, binary data, lines of any length. Linear in its size.
PastedLog read_log(std::string_view text);

// The user's script, from the first traceback; nothing if there is none.
std::optional<std::string> program_in(const PastedLog& log);

}  // namespace ddp_doctor
