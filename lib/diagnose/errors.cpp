// SPDX-License-Identifier: BSD-3-Clause
#include "lib/diagnose/errors.h"

#include <algorithm>
#include <charconv>
#include <regex>
#include <sstream>
#include <string_view>

namespace ddp_doctor {
namespace {

bool contains(const std::string& text, const char* words) {
  return text.find(words) != std::string::npos;
}

// Python's chained exceptions, the root first; `raise X from e` and what is raised in an except
// block alike.
std::vector<std::string> chain_in(const std::string& text) {
  static constexpr std::string_view kLinks[] = {
      "\nThe above exception was the direct cause of the following exception:\n",
      "\nDuring handling of the above exception, another exception occurred:\n"};
  std::vector<std::string> chain;
  std::size_t begin = 0;
  for (;;) {
    std::size_t end = std::string::npos, next = std::string::npos;
    for (const auto link : kLinks) {
      if (const auto at = text.find(link, begin); at < end) {
        end = at;
        next = text.find_first_not_of('\n', at + link.size());
      }
    }
    chain.push_back(text.substr(begin, end == std::string::npos ? end : end - begin));
    if (next == std::string::npos) return chain;
    begin = next;
  }
}

std::string kind_of_one(const std::string& text) {
  if (contains(text, "Expected to have finished reduction")) {
    return contains(text, "static_graph set to True") ? "static-graph" : "unfinished-reduction";
  }
  // Lightning puts these words in the place of PyTorch's.
  if (contains(text, "not used in producing the loss returned by training_step"))
    return "unfinished-reduction";
  // Raised when a no_sync backward meets static_graph's delayed all-reduce.
  if (contains(text, "training graph has changed") ||
      contains(text, "expect_autograd_hooks_ INTERNAL ASSERT")) {
    return "static-graph";
  }
  if (contains(text, "mark a variable ready only once")) return "marked-twice";
  static const std::regex stuck("Timed out waiting|Application timeout|wait timeout",
                                std::regex::icase);
  if (std::regex_search(text, stuck)) return "stuck-collective";
  // The checks of Gloo and of TORCH_DISTRIBUTED_DEBUG=DETAIL.
  if (contains(text, "preamble.length <= ") || contains(text, "mismatch between collectives"))
    return "mismatched-collective";
  static const std::regex peer(
      "Connection closed by peer|Connection reset by peer|Connection refused|Socket closed|Broken "
      "pipe|connectFullMesh",
      std::regex::icase);
  return std::regex_search(text, peer) ? "peer-lost" : "exception";
}

std::string line_of_one(const std::string& text) {
  const bool trace_first =
      text.starts_with("The following operation failed") || text.starts_with("Traceback");
  std::string line;
  if (!trace_first) {
    line = text.substr(0, text.find('\n'));
  } else {
    // From the last line that begins like "RuntimeError: ...".
    static const std::regex raised("(^|\n)([A-Za-z_.]*(Error|Exception|Interrupt)[A-Za-z_]*: )");
    std::size_t begin = text.rfind('\n', text.find_last_not_of(" \n")) + 1;
    for (std::sregex_iterator match(text.begin(), text.end(), raised), end; match != end; ++match) {
      begin = static_cast<std::size_t>(match->position(2));
    }
    line = text.substr(begin);
    std::replace(line.begin(), line.end(), '\n', ' ');
  }
  // Remove PyTorch's advice in the middle of this error.
  const auto advice = line.find(" You can enable unused parameter detection");
  const auto indices = line.find("Parameter indices which did not receive grad");
  if (advice != std::string::npos) {
    const std::string listed = indices == std::string::npos ? "" : " " + line.substr(indices);
    line = line.substr(0, advice) + listed.substr(0, listed.find("  In addition"));
  }
  while (line.ends_with(' ')) line.pop_back();
  return line;
}

}  // namespace

std::string error_kind(const std::string& text) {
  const auto chain = chain_in(text);
  for (const auto& one : chain) {
    const std::string kind = kind_of_one(one);
    if (kind == "unfinished-reduction" || kind == "static-graph" || kind == "marked-twice")
      return kind;
  }
  return kind_of_one(chain.front());
}

std::string telling_line(const std::string& text) {
  const auto chain = chain_in(text);
  const std::string root = line_of_one(chain.front());
  const std::string last = line_of_one(chain.back());
  // `raise Trouble(str(e)) from e` says nothing new.
  const bool repeats = last.find(root.substr(root.find(": ") + 1)) != std::string::npos;
  return chain.size() == 1 || repeats ? root : root + "; it became " + last;
}

std::optional<int> index_marked_twice(const std::string& text) {
  constexpr std::string_view kWords = "Parameter at index ";
  const auto at = text.find(kWords);
  if (at == std::string::npos) return {};
  int index = 0;
  const char* begin = text.data() + at + kWords.size();
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), index);
  if (error != std::errc() || end == begin || index < 0) return {};
  return index;
}

// Without a regular expression: one recurses for each letter, and the lists of large models have
// tens of thousands.
std::vector<int> indices_in(const std::string& error) {
  constexpr std::string_view kWhich = "Parameter indices which did not receive grad for rank ";
  std::vector<int> indices;
  auto at = error.find(kWhich);
  if (at == std::string::npos) return indices;
  at = error.find_first_not_of("0123456789", at + kWhich.size());
  if (at == std::string::npos || error.compare(at, 2, ": ") != 0) return indices;
  const auto end = error.find_first_not_of("0123456789 ", at + 2);
  std::istringstream list(error.substr(at + 2, end == std::string::npos ? end : end - at - 2));
  for (int index; list >> index;) indices.push_back(index);
  return indices;
}

}  // namespace ddp_doctor
