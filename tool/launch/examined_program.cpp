// SPDX-License-Identifier: BSD-3-Clause
#include "tool/launch/examined_program.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "lib/record/worker.h"

namespace ddp_doctor {

bool examines_itself(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::string head(4, '\0');
  in.read(head.data(), 4);
  if (!in || head !=
                 "\x7f"
                 "ELF")
    return false;
  const std::string_view mark = kExaminedProgramMark;
  const std::boyer_moore_horspool_searcher search(mark.begin(), mark.end());
  // Blocks that overlap by the mark's length.
  std::vector<char> block(1 << 20);
  std::size_t kept = 0;
  while (in) {
    in.read(block.data() + kept, static_cast<std::streamsize>(block.size() - kept));
    const auto end = block.begin() + static_cast<std::ptrdiff_t>(kept) + in.gcount();
    if (std::search(block.begin(), end, search) != end) return true;
    kept = std::min(mark.size(), static_cast<std::size_t>(end - block.begin()));
    std::copy(end - static_cast<std::ptrdiff_t>(kept), end, block.begin());
  }
  return false;
}

}  // namespace ddp_doctor
