// SPDX-License-Identifier: BSD-3-Clause
#include "tool/cli/misspelling.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string_view>

#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

constexpr std::size_t kMaxOffered = 4;
constexpr char kRanks[] = "--nproc-per-node";

// What mpirun, accelerate, deepspeed, horovodrun and others call --nproc-per-node.
constexpr const char* kRanksElsewhere[] = {
    "-n",     "-np",     "--n",     "--np",       "--nproc",      "--nprocs",        "--num-proc",
    "--gpus", "--ngpus", "--ranks", "--num-gpus", "--world-size", "--num-processes",
};

// Letters that are easily taken for each other become one, and so do - and _.
std::string normalized(std::string_view word) {
  std::string text;
  for (const char letter : word) {
    const char lower = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    text += lower == 'o' ? '0' : lower == 'l' || lower == 'i' ? '1' : lower == '_' ? '-' : lower;
  }
  return text;
}

// Letters to insert, delete, replace, or swap with their neighbor (optimal string alignment); and
// to get from a long word to the beginning of `to`.
std::size_t distance(const std::string& from, const std::string& to) {
  constexpr std::size_t kLong = 6;
  std::vector<std::vector<std::size_t>> table(from.size() + 1,
                                              std::vector<std::size_t>(to.size() + 1));
  for (std::size_t i = 0; i <= from.size(); ++i) {
    for (std::size_t j = 0; j <= to.size(); ++j) {
      if (i == 0 || j == 0) {
        table[i][j] = i + j;
        continue;
      }
      table[i][j] = std::min({table[i - 1][j] + 1, table[i][j - 1] + 1,
                              table[i - 1][j - 1] + (from[i - 1] == to[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1])
        table[i][j] = std::min(table[i][j], table[i - 2][j - 2] + 1);
    }
  }
  const auto& last = table[from.size()];
  return from.size() < kLong ? last[to.size()] : *std::min_element(last.begin(), last.end());
}

}  // namespace

std::vector<std::string> meant_by(const std::string& word, const std::vector<std::string>& known) {
  const std::string given = normalized(word);
  const std::size_t letters = given.size() - std::min(given.size(), given.find_first_not_of('-'));
  const std::size_t limit = std::min<std::size_t>(2, letters < 5 ? letters / 3 : (letters + 1) / 3);
  std::vector<std::string> nearest;
  std::size_t least = limit;
  for (const auto& name : known) {
    const std::string candidate = normalized(name);
    const bool begins = letters >= 3 && candidate.starts_with(given);
    const std::size_t between = std::min(distance(given, candidate), begins ? limit : limit + 1);
    if (between > least) continue;
    if (between < least) nearest.clear();
    least = between;
    nearest.push_back(name);
  }
  return limit > 0 && nearest.size() <= kMaxOffered ? nearest : std::vector<std::string>{};
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& known) {
  const auto meant = meant_by(word, known);
  return meant.empty() ? std::string()
                       : fmt::format("; did you mean {}?", fmt::join(meant, " or "));
}

std::string did_you_mean_rule(const std::string& word) {
  std::vector<std::string> codes, names;
  for (const Rule* rule : all_rules()) {
    codes.emplace_back(rule->code);
    names.emplace_back(rule->name);
  }
  // Of a code that does not exist, the family: a code with another digit is another rule.
  const std::string given = normalized(word);
  const std::string number = given.starts_with("ddp") ? given.substr(3) : given;
  if (number.empty() || number.find_first_not_of("0123456789") != std::string::npos)
    return did_you_mean(word, names);
  for (const std::string& code : {"DDP" + number, "DDP" + number.substr(0, 1)}) {
    std::vector<std::string> family;
    std::copy_if(codes.begin(), codes.end(), std::back_inserter(family),
                 [&](const std::string& known) { return known.starts_with(code); });
    if (family.size() == 1) return fmt::format("; did you mean {}?", family.front());
    if (!family.empty()) return fmt::format("; there are {} to {}", family.front(), family.back());
  }
  return {};
}

std::vector<std::string> meant_flags(const CLI::App& command, const std::string& name) {
  std::string dashed = name;
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  std::vector<std::string> names;
  for (const auto* option : command.get_options()) {
    if (!option->get_lnames().empty()) names.push_back("--" + option->get_lnames().front());
  }
  if (is_ranks_elsewhere(dashed) && std::find(names.begin(), names.end(), kRanks) != names.end())
    return {kRanks};
  return name.starts_with("--") ? meant_by(dashed, names) : std::vector<std::string>{};
}

bool is_ranks_elsewhere(const std::string& flag) {
  return std::find(std::begin(kRanksElsewhere), std::end(kRanksElsewhere), flag) !=
         std::end(kRanksElsewhere);
}

std::optional<std::string> misspelt_flag(const CLI::App& command) {
  for (const std::string& extra : command.remaining()) {
    const std::string word = extra.substr(0, extra.find('='));
    if (!word.starts_with('-')) continue;
    const auto meant = meant_flags(command, word);
    if (!meant.empty())
      return fmt::format("unknown option {}; did you mean {}?", word, fmt::join(meant, " or "));
  }
  return {};
}

}  // namespace ddp_doctor
