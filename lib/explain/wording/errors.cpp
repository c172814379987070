// SPDX-License-Identifier: BSD-3-Clause
#include "lib/explain/wording/errors.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <regex>
#include <sstream>
#include <string_view>

#include "lib/explain/wording/phrases.h"

namespace ddp_doctor {
namespace {

bool contains(std::string_view text, const char* words) {
  return text.find(words) != std::string_view::npos;
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
  if (contains(text, phrases::kUnfinishedReduction))
    return contains(text, "static_graph set to True") ? "static-graph" : "unfinished-reduction";
  if (contains(text, phrases::kLightningUnused)) return "unfinished-reduction";
  if (contains(text, phrases::kGraphChanged) || contains(text, phrases::kHooksNotExpected))
    return "static-graph";
  if (contains(text, phrases::kMarkedTwice)) return "marked-twice";
  static const std::regex stuck("Timed out waiting|Application timeout|wait timeout",
                                std::regex::icase);
  if (std::regex_search(text, stuck)) return "stuck-collective";
  if (contains(text, phrases::kGlooSizes) || contains(text, phrases::kMismatchedCalls))
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

std::optional<int> index_marked_twice(std::string_view text) {
  constexpr std::string_view kWords = phrases::kParameterAtIndex;
  const auto at = text.find(kWords);
  if (at == std::string_view::npos) return {};
  int index = 0;
  const char* begin = text.data() + at + kWords.size();
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), index);
  if (error != std::errc() || end == begin || index < 0) return {};
  return index;
}

std::vector<int> indices_in(std::string_view text) {
  constexpr std::string_view kWhich = phrases::kWithoutGradient;
  constexpr std::string_view kList = "Parameter indices";
  const auto at = text.find(std::string(kList) + std::string(kWhich));
  if (at == std::string_view::npos) return {};
  return indices_listed(text.substr(at + kList.size() + kWhich.size()));
}

// Without a regular expression: one recurses for each letter, and the lists of large models have
// tens of thousands.
std::vector<int> indices_listed(std::string_view text) {
  const auto colon = text.find_first_not_of("0123456789");
  if (colon == std::string_view::npos || text.compare(colon, 2, ": ") != 0) return {};
  text.remove_prefix(colon + 2);
  std::istringstream list(std::string(text.substr(0, text.find_first_not_of("0123456789 "))));
  std::vector<int> indices;
  for (int index; list >> index;) indices.push_back(index);
  return indices;
}

bool is_one_forward_late(std::string_view text) {
  return contains(text, phrases::kUnfinishedReduction);
}

bool is_static_graph_under_no_sync(std::string_view text) {
  return contains(text, phrases::kHooksNotExpected);
}

bool went_through_checkpoint(std::string_view text) {
  return contains(text, phrases::kCheckpointFile);
}

bool lacks_a_launcher(const std::string& text) {
  static const std::regex lacks("environment variable [A-Z_]+ expected, but not set");
  return std::regex_search(text, lacks);
}

bool is_port_taken(std::string text) {
  for (char& letter : text)
    letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return contains(text, "address already in use") ||
         contains(text, "is in use: choose another port") || contains(text, "eaddrinuse");
}

}  // namespace ddp_doctor
