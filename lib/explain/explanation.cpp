// SPDX-License-Identifier: BSD-3-Clause
// Finds all known texts in each rank's stream, reads their fields, and sorts them. Words are found
// in one pass and fields are read in short windows after them: a regular expression over a whole
// log would overflow the stack on a long line.
#include "lib/explain/explanation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <set>

#include "lib/diagnose/facts.h"
#include "lib/explain/known_texts.h"
#include "lib/explain/message_window.h"
#include "lib/explain/pasted_log.h"
#include "lib/explain/phrase_matches.h"

namespace ddp_doctor {
namespace {

using std::string_view;

// A known text in this log.
struct Found {
  const KnownText* text;
  MessageFields facts = {};
  std::size_t line = std::numeric_limits<std::size_t>::max();
  std::vector<const LogStream*> streams = {};
};

bool has(string_view text, string_view words) { return text.find(words) != string_view::npos; }

// "ValueError: bad sample 17", as Python ends a traceback.
bool is_error(string_view line) {
  const auto end = line.substr(0, 120).find_first_not_of(
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.");
  const auto name = line.substr(0, end);
  if (!name.ends_with("Error") && !name.ends_with("Exception")) return false;
  // These are about other errors: torchrun's summary, and the second line of NCCL's message.
  if (name.ends_with("ChildFailedError") || name.starts_with("nccl")) return false;
  return name.size() == line.size() || line[name.size()] == ':' || line.substr(name.size()) == " ";
}

struct OwnErrors {
  Found found{&own_error_text()};
  std::string last;
  std::size_t last_line = 0;
  bool in_library = false;
};

// Whether an error is one of torch.distributed's, or the traceback above it ends in a library of
// distributed training.
bool is_in_library(string_view error, string_view before) {
  for (const auto* name : {"DistBackendError", "DistStoreError", "DistNetworkError", "DistError"}) {
    if (has(error.substr(0, 60), name)) return true;
  }
  before = last_of(before, 2000);
  const auto frame = before.rfind("File \"");
  if (frame == string_view::npos) return false;
  const auto file = until(before.substr(frame + 6), "\"");
  for (const auto* folder :
       {"torch/distributed/", "torch/nn/parallel/", "deepspeed/", "megatron/core/"}) {
    if (has(file, folder)) return true;
  }
  return false;
}

// The program's own errors: those that contain no known text.
void collect_errors(const LogStream& stream, std::vector<std::size_t> known, OwnErrors& errors) {
  std::sort(known.begin(), known.end());
  for (std::size_t i = 0; i < stream.lines.size(); ++i) {
    auto line = stream.line(i);
    if (!is_error(line)) continue;
    const auto [begin, number] = stream.lines[i];
    const auto inside = std::lower_bound(known.begin(), known.end(), begin);
    const bool own = inside == known.end() || *inside >= begin + line.size();
    line = line.substr(0, 300);
    while (line.ends_with(' ')) line.remove_suffix(1);
    if (number > errors.last_line) {
      errors.last = line;
      errors.last_line = number;
      errors.in_library = is_in_library(line, string_view(stream.text).substr(0, begin));
    }
    if (!own) continue;
    RankFields& fields = errors.found.facts.by(stream.rank);
    // Without labels, the errors may come from several ranks.
    const std::size_t max_errors = stream.rank ? 1 : 5;
    const auto seen = std::any_of(fields.figures.begin(), fields.figures.end(),
                                  [&](const auto& figure) { return figure.second == line; });
    if (seen || fields.figures.size() >= max_errors) continue;
    fields.note(
        fields.figures.empty() ? "error" : fmt::format("error {}", fields.figures.size() + 1),
        std::string(line));
    errors.found.line = std::min(errors.found.line, number);
    fields.line = std::min(fields.line, number);
  }
}

void sort_unique(auto& list) {
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

std::vector<RankFields> fields_in(const MessageFields& facts) {
  std::vector<RankFields> all;
  for (const auto& [rank, fields] : facts.ranks) {
    const bool empty = fields.indices.empty() && fields.names.empty() && fields.figures.empty();
    // Lines without a label and without fields are ignored if others have labels.
    if (rank < 0 && empty && facts.ranks.size() > 1) continue;
    all.push_back(fields);
    sort_unique(all.back().indices);
    sort_unique(all.back().names);
  }
  return all;
}

Explanation explanation_of(const Found& found, const std::string& program) {
  const KnownText& known = *found.text;
  Explanation explanation;
  explanation.text = known.id;
  for (const Rule* rule : known.rules) explanation.rules.emplace_back(rule->code);
  explanation.severity = known.severity;
  // The rule may be certain where the cause is not.
  explanation.certainty = known.causes.size() > 1 ? Certainty::kLikely : known.certainty;
  explanation.line = found.line;
  explanation.fields = fields_in(found.facts);
  explanation.suspects.assign(found.facts.suspects.begin(), found.facts.suspects.end());
  explanation.says = known.says;
  explanation.means.assign(known.means.begin(), known.means.end());
  explanation.causes.assign(known.causes.begin(), known.causes.end());
  const auto is_in_log = [&](const Hint& hint) {
    return std::any_of(found.streams.begin(), found.streams.end(),
                       [&](const auto* stream) { return has(stream->text, hint.words); });
  };
  const auto version = std::find_if(known.versions.begin(), known.versions.end(), is_in_log);
  if (version != known.versions.end()) explanation.torch = version->means;
  for (const auto& hint : known.hints) {
    if (is_in_log(hint)) explanation.seen.emplace_back(hint.means);
  }
  if (known.weigh != nullptr) known.weigh(explanation);
  if (!explanation.rules.empty()) {
    std::stable_partition(
        explanation.causes.begin(), explanation.causes.end(),
        [&](const std::string& cause) { return cause.starts_with(explanation.rules.front()); });
  }
  for (const auto& [command, why] : known.commands)
    explanation.next.push_back({std::string(command), std::string(why)});
  constexpr string_view kAfterTheFix =
      "after the fix, checks that gradients and weights agree across the ranks";
  explanation.next.push_back(
      {"ddp-doctor run " + program, std::string(known.run.empty() ? kAfterTheFix : known.run)});
  for (std::size_t i = 0; i < std::min<std::size_t>(2, explanation.rules.size()); ++i)
    explanation.next.push_back({"ddp-doctor explain " + explanation.rules[i], ""});
  return explanation;
}

// What the ranks of the log show together: which raised the error, and which only lost those.
// `labelled`: ranks by the labels of launchers, so that an error has a rank for certain.
void compare_ranks(std::vector<Explanation>& explanations, const std::vector<Found>& found,
                   const std::set<int>& labelled) {
  if (found.front().text->depth != Depth::kCause) return;
  Explanation& first = explanations.front();
  const auto raised = first.ranks();
  const auto is_labelled = [&](int rank) { return labelled.contains(rank); };
  if (raised.empty() || !std::all_of(raised.begin(), raised.end(), is_labelled)) return;
  std::set<int> lost;
  for (std::size_t i = 1; i < found.size(); ++i) {
    if (found[i].text->depth != Depth::kCollective && found[i].text->depth != Depth::kConsequence)
      continue;
    for (const int rank : explanations[i].ranks()) {
      if (is_labelled(rank) && std::find(raised.begin(), raised.end(), rank) == raised.end())
        lost.insert(rank);
    }
  }
  if (raised.size() > 1 && raised.size() < labelled.size()) {
    const auto earliest =
        std::min_element(first.fields.begin(), first.fields.end(),
                         [](const auto& a, const auto& b) { return a.line < b.line; });
    if (earliest->rank)
      first.seen.push_back(fmt::format("Of these, rank {} is the first in this text, in line {}.",
                                       *earliest->rank, earliest->line));
  }
  const auto upper = [](const std::string& ranks) { return "R" + ranks.substr(1); };
  if (!lost.empty()) {
    first.seen.push_back(
        fmt::format("{} raised it; {} only waited for that, or lost the connection.",
                    upper(ranks_of(raised)), ranks_of(std::vector<int>(lost.begin(), lost.end()))));
  } else if (raised.size() > 1 && raised.size() == labelled.size()) {
    first.seen.emplace_back("Every rank in this text raises it: it does not depend on the rank.");
  }
}

// A lost connection is a consequence of any other error in the log, and then needs no causes.
void relate(std::vector<Explanation>& explanations, const std::vector<Found>& found) {
  const Depth nearest = found.front().text->depth;
  for (std::size_t i = 0; i < explanations.size(); ++i) {
    if (found[i].text->depth != Depth::kConsequence || found[i].text->weigh != nullptr) continue;
    auto& explanation = explanations[i];
    if (nearest >= Depth::kConsequence) {
      explanation.seen.emplace_back(
          "No rank in this text has an error of its own: the other ranks' output is needed.");
      continue;
    }
    const auto& first = explanations.front();
    explanation.seen.push_back(fmt::format("It is a consequence of the first error above, {}.",
                                           first.rules.empty() ? first.text : first.rules.front()));
    explanation.causes.clear();
    explanation.next.clear();
  }
}

}  // namespace

std::vector<int> Explanation::ranks() const {
  std::vector<int> ranks;
  for (const auto& rank : fields) {
    if (rank.rank) ranks.push_back(*rank.rank);
  }
  return ranks;
}

ExplainedLog explain_log(std::string_view text) {
  const PastedLog log = read_log(text);
  const Matches matches = matches_in(log);
  std::vector<Found> found;
  for (const auto* known : known_texts()) found.push_back({known});
  OwnErrors errors;
  std::set<int> labelled;
  for (std::size_t i = 0; i < log.streams.size(); ++i) {
    const auto& stream = log.streams[i];
    if (stream.rank) labelled.insert(*stream.rank);
    std::map<const KnownText*, std::vector<std::size_t>> places;
    std::vector<std::size_t> all;
    for (const auto& match : matches.of[i]) {
      if (!counts(match, stream.text, matches.contexts)) continue;
      places[match.text].push_back(match.at);
      all.push_back(match.at);
    }
    for (auto& entry : found) {
      const auto positions = places.find(entry.text);
      if (positions == places.end()) continue;
      const auto line = stream.number_at(positions->second.front());
      entry.line = std::min(entry.line, line);
      RankFields& fields = entry.facts.by(stream.rank);
      fields.line = std::min(fields.line, line);
      entry.streams.push_back(&stream);
      read_fields(entry.text->fields, stream, positions->second, entry.facts);
      entry.text->read(stream, entry.facts);
    }
    collect_errors(stream, std::move(all), errors);
  }
  std::erase_if(found, [](const Found& entry) { return entry.streams.empty(); });
  const auto is_found = [&](string_view id) {
    return std::any_of(found.begin(), found.end(),
                       [&](const Found& entry) { return entry.text->id == id; });
  };
  std::vector<const KnownText*> parts;
  for (const auto& entry : found) {
    const auto& whole = entry.text->part_of;
    if (std::any_of(whole.begin(), whole.end(), is_found)) parts.push_back(entry.text);
  }
  std::erase_if(found, [&](const Found& entry) {
    return std::find(parts.begin(), parts.end(), entry.text) != parts.end();
  });
  // A program's own error is explained only if it explains other texts.
  const bool consequences = std::any_of(found.begin(), found.end(), [](const Found& entry) {
    return entry.text->depth == Depth::kCollective || entry.text->depth == Depth::kConsequence;
  });
  if (consequences && !errors.found.facts.ranks.empty()) found.push_back(std::move(errors.found));
  std::stable_sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
    return std::pair(a.text->depth, a.line) < std::pair(b.text->depth, b.line);
  });

  ExplainedLog explained;
  explained.lines = log.lines;
  explained.program = program_in(log);
  explained.last_error = errors.last;
  explained.last_error_in_library = errors.in_library;
  for (const auto& entry : found)
    explained.explanations.push_back(explanation_of(entry, explained.program.value_or("train.py")));
  if (found.empty()) return explained;
  relate(explained.explanations, found);
  compare_ranks(explained.explanations, found, labelled);
  return explained;
}

}  // namespace ddp_doctor
