// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/render/explanations.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"
#include "lib/report/render/wrap.h"

namespace ddp_doctor {
namespace {

constexpr std::size_t kMaxParameters = 20;
constexpr std::size_t kMaxListed = 8;

template <class List>
std::string shortened(const List& list) {
  if (list.size() <= kMaxParameters) return fmt::format("{}", fmt::join(list, ", "));
  const List first(list.begin(), list.begin() + kMaxParameters);
  return fmt::format("{} and {} more", fmt::join(first, ", "), list.size() - kMaxParameters);
}

std::string content_of(const RankFields& fields) {
  std::vector<std::string> parts;
  if (!fields.indices.empty())
    parts.push_back(fmt::format("parameter {} {}", fields.indices.size() == 1 ? "index" : "indices",
                                shortened(fields.indices)));
  if (!fields.names.empty()) parts.push_back(shortened(fields.names));
  if (fields.cut) parts.emplace_back("the list is cut short");
  for (const auto& [what, value] : fields.figures) parts.push_back(what + " " + value);
  return fmt::format("{}", fmt::join(parts, "; "));
}

// Ranks that say the same share a line.
struct Group {
  std::vector<int> ranks;
  std::string content;
};

std::vector<Group> groups_of(const Explanation& explanation) {
  std::vector<Group> groups;
  for (const auto& fields : explanation.fields) {
    std::string content = content_of(fields);
    if (content.empty()) continue;
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const Group& g) { return g.content == content; });
    // A log may have any number of "ranks"; only some lines are shown.
    if (group == groups.end() && groups.size() > 10 * kMaxListed) break;
    if (group == groups.end()) {
      groups.push_back({{}, std::move(content)});
      group = groups.end() - 1;
    }
    if (fields.rank) group->ranks.push_back(*fields.rank);
  }
  return groups;
}

std::string ranks_in_short(const std::vector<int>& ranks) {
  const bool run =
      ranks.size() > 3 && ranks.back() - ranks.front() + 1 == static_cast<int>(ranks.size());
  if (run) return fmt::format("ranks {} to {}", ranks.front(), ranks.back());
  if (ranks.size() <= kMaxParameters) return ranks_of(ranks);
  return fmt::format("{} ranks from {} to {}", ranks.size(), ranks.front(), ranks.back());
}

class ExplanationText {
 public:
  explicit ExplanationText(std::ostream& out) : out_(out) {}

  void print(const ExplainedLog& log) {
    const auto count = log.explanations.size();
    out_ << fmt::format("{} in {}{}\n", count_of(count, "known text"), count_of(log.lines, "line"),
                        count > 1 ? ", nearest to the cause first" : "");
    for (const auto& explanation : log.explanations) print(explanation);
  }

 private:
  void list(const char* caption, const std::vector<std::string>& items) {
    if (items.empty()) return;
    out_ << "  " << caption << '\n';
    for (const auto& item : items) print_wrapped(out_, "- " + item, 4, 6);
  }

  void print(const Explanation& explanation) {
    const Rule* rule = explanation.rules.empty() ? nullptr : find_rule(explanation.rules.front());
    const auto ranks = explanation.ranks();
    out_ << '\n'
         << (rule != nullptr ? fmt::format("{} {}", rule->code, rule->name)
                             : explanation.text + " (no rule of its own)")
         << fmt::format(": {}, {}; {}from line {}\n", name_of(explanation.severity),
                        name_of(explanation.certainty),
                        ranks.empty() ? "" : ranks_in_short(ranks) + ", ", explanation.line);
    print_wrapped(out_, explanation.says, 2, 2);
    const auto groups = groups_of(explanation);
    for (std::size_t i = 0; i < std::min(groups.size(), kMaxListed); ++i) {
      const auto& group = groups[i];
      print_wrapped(out_,
                    (group.ranks.empty() ? "" : ranks_in_short(group.ranks) + ": ") + group.content,
                    4, 6);
    }
    if (groups.size() > kMaxListed)
      out_ << "    more ranks with other figures: see --format json\n";
    if (!explanation.torch.empty())
      print_wrapped(out_, fmt::format("Wording of torch versions: {}.", explanation.torch), 2, 2);
    list("Seen here", explanation.seen);
    list("What it means", explanation.means);
    list("What may have caused it", explanation.causes);
    if (!explanation.next.empty()) out_ << "  Next\n";
    for (const auto& next : explanation.next)
      print_wrapped(out_, next.command + (next.why.empty() ? "" : ": " + next.why), 4, 6);
  }

  std::ostream& out_;
};

using nlohmann::ordered_json;

ordered_json to_json(const RankFields& fields) {
  ordered_json out = {{"rank", nullptr},
                      {"indices", fields.indices},
                      {"names", fields.names},
                      {"complete", !fields.cut},
                      {"figures", ordered_json::object()}};
  if (fields.rank) out["rank"] = *fields.rank;
  for (const auto& [what, value] : fields.figures) out["figures"][what] = value;
  return out;
}

ordered_json to_json(const Explanation& explanation) {
  ordered_json out = {{"text", explanation.text},
                      {"rules", explanation.rules},
                      {"severity", name_of(explanation.severity)},
                      {"certainty", name_of(explanation.certainty)},
                      {"line", explanation.line},
                      {"torch", nullptr},
                      {"ranks", explanation.ranks()},
                      {"suspects", explanation.suspects},
                      {"said", ordered_json::array()},
                      {"says", explanation.says},
                      {"seen", explanation.seen},
                      {"means", explanation.means},
                      {"causes", explanation.causes},
                      {"next", ordered_json::array()}};
  if (!explanation.torch.empty()) out["torch"] = explanation.torch;
  for (const auto& fields : explanation.fields) out["said"].push_back(to_json(fields));
  for (const auto& next : explanation.next)
    out["next"].push_back({{"command", next.command}, {"why", next.why}});
  return out;
}

}  // namespace

void render_text(const ExplainedLog& log, std::ostream& out) { ExplanationText(out).print(log); }

void render_json(const ExplainedLog& log, const std::string& tool_version,
                 const MentionedParameters* mentioned, std::ostream& out) {
  ordered_json json = {{"schema_version", 1},
                       {"tool", {{"name", "ddp-doctor"}, {"version", tool_version}}},
                       {"lines", log.lines},
                       {"program", nullptr},
                       {"explanations", ordered_json::array()}};
  if (log.program) json["program"] = *log.program;
  for (const auto& explanation : log.explanations)
    json["explanations"].push_back(to_json(explanation));
  if (mentioned != nullptr) json["mentioned"] = as_json(*mentioned);
  out << json.dump(2, ' ', false, ordered_json::error_handler_t::replace) << '\n';
}

}  // namespace ddp_doctor
