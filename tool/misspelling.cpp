// SPDX-License-Identifier: BSD-3-Clause
#include "tool/misspelling.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

namespace ddp_doctor {
namespace {

// Letters to insert, to delete or to replace (Levenshtein's distance).
std::size_t distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= from.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= to.size(); ++j) {
      const std::size_t replaced = diagonal + (from[i - 1] == to[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replaced}));
    }
  }
  return row.back();
}

}  // namespace

std::optional<Misspelling> misspelling(const CLI::App& command) {
  for (const std::string& extra : command.remaining()) {
    if (!extra.starts_with("--")) continue;
    const std::string word = extra.substr(2, extra.find('=') - 2);
    std::string nearest;
    std::size_t least = std::min<std::size_t>(2, word.size() / 3) + 1;
    for (const auto* option : command.get_options()) {
      for (const auto& name : option->get_lnames()) {
        const std::size_t between = distance(word, name);
        if (between >= least) continue;
        least = between;
        nearest = name;
      }
    }
    if (!nearest.empty()) return Misspelling{"--" + word, "--" + nearest};
  }
  return {};
}

}  // namespace ddp_doctor
