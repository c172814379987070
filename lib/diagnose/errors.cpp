#include "lib/diagnose/errors.h"

#include <algorithm>
#include <regex>
#include <sstream>

namespace ddp_doctor {
namespace {

bool contains(const std::string& text, const char* words) {
  return text.find(words) != std::string::npos;
}

}  // namespace

std::string error_kind(const std::string& text) {
  if (contains(text, "Expected to have finished reduction")) {
    return contains(text, "static_graph set to True") ? "static-graph" : "unfinished-reduction";
  }
  if (contains(text, "training graph has changed")) return "static-graph";
  if (contains(text, "mark a variable ready only once")) return "marked-twice";
  static const std::regex stuck("Timed out waiting|Application timeout|wait timeout",
                                std::regex::icase);
  if (std::regex_search(text, stuck)) return "stuck-collective";
  static const std::regex peer(
      "Connection closed by peer|Connection reset by peer|Connection refused|Socket closed|Broken "
      "pipe|connectFullMesh",
      std::regex::icase);
  return std::regex_search(text, peer) ? "peer-lost" : "exception";
}

std::string telling_line(const std::string& text) {
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
  while (line.ends_with(' ')) line.pop_back();
  return line;
}

std::vector<int> indices_in(const std::string& error) {
  static const std::regex pattern(
      "Parameter indices which did not receive grad for rank [0-9]+: ([0-9 ]+)");
  std::smatch match;
  std::vector<int> indices;
  if (!std::regex_search(error, match, pattern)) return indices;
  std::istringstream list(match[1]);
  for (int index; list >> index;) indices.push_back(index);
  return indices;
}

}  // namespace ddp_doctor
