// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/wrap.h"

#include <string>

namespace ddp_doctor {

void print_wrapped(std::ostream& out, std::string_view text, std::size_t first,
                   std::size_t others) {
  constexpr std::size_t kWidth = 100;
  std::size_t indent = first;
  std::string line(indent, ' ');
  std::size_t start = 0;
  while (start < text.size()) {
    std::size_t end = text.find(' ', start);
    if (end == std::string_view::npos) end = text.size();
    const auto word = text.substr(start, end - start);
    if (line.size() > indent && line.size() + 1 + word.size() > kWidth) {
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

}  // namespace ddp_doctor
