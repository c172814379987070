// SPDX-License-Identifier: BSD-3-Clause
// Interprets the fields of several ranks together.
#include "lib/explain/weighing.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/diagnose/facts.h"
#include "lib/explain/explanation.h"
#include "lib/explain/known_texts.h"

namespace ddp_doctor {

FigureValues figures_of(const Explanation& explanation, const std::string& what) {
  FigureValues figures;
  for (const auto& fields : explanation.fields) {
    const auto* value = fields.figure(what);
    if (value == nullptr) continue;
    figures.values.insert(*value);
    if (fields.rank) figures.ranks.push_back(*fields.rank);
  }
  return figures;
}

bool is_in(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

std::vector<int> behind(const std::vector<RankFields>& ranks, const std::string& what) {
  std::vector<int> last;
  long long smallest = 0;
  bool differ = false;
  for (const auto& fields : ranks) {
    const auto* value = fields.figure(what);
    if (value == nullptr || !fields.rank) continue;
    const long long number = std::atoll(value->c_str());
    differ |= !last.empty() && number != smallest;
    if (last.empty() || number < smallest) {
      last = {*fields.rank};
      smallest = number;
    } else if (number == smallest) {
      last.push_back(*fields.rank);
    }
  }
  return differ ? last : std::vector<int>();
}

void put(Explanation& explanation, const Rule& rule, std::ptrdiff_t place) {
  auto& rules = explanation.rules;
  std::erase(rules, rule.code);
  rules.insert(rules.begin() + place, rule.code);
}

void weigh_unused(Explanation& explanation) {
  std::vector<const RankFields*> lists;
  for (const auto& fields : explanation.fields) {
    if (!fields.indices.empty() || !fields.names.empty()) lists.push_back(&fields);
  }
  if (lists.empty()) {
    explanation.seen.emplace_back("The text contains no list of parameters.");
    return;
  }
  std::vector<int> ranks;
  for (const auto* fields : lists) {
    if (fields->rank) ranks.push_back(*fields->rank);
  }
  const bool same = std::all_of(lists.begin(), lists.end(), [&](const auto* fields) {
    return fields->indices == lists.front()->indices &&
           (!fields->indices.empty() || fields->names == lists.front()->names);
  });
  if (!same) {
    explanation.seen.push_back(fmt::format(
        "Ranks list different parameters: a branch depends on the rank or its batch ({}).",
        kRankDependentGraph.code));
    // A violation of static_graph stays first, on whichever rank it happened.
    const auto& rules = explanation.rules;
    const bool promised = !rules.empty() && rules.front() == kStaticGraphViolated.code;
    put(explanation, kRankDependentGraph, promised ? 1 : 0);
  } else if (lists.size() > 1) {
    explanation.seen.push_back(
        fmt::format("{} list the same parameters: no branch depends on the rank.",
                    ranks.size() == lists.size() ? "R" + ranks_of(ranks).substr(1) : "All ranks"));
  } else {
    explanation.seen.push_back(fmt::format(
        "Only {}'s list is in the text. If another rank lists different parameters, it is {}.",
        ranks.empty() ? "one rank" : ranks_of(ranks), kRankDependentGraph.code));
  }
}

void weigh_counts(Explanation& explanation) {
  const auto counts = figures_of(explanation, "trainable parameters");
  if (!counts.values.contains("0")) return;
  explanation.certainty = Certainty::kLikely;
  explanation.seen.emplace_back(
      "A rank reads a count of 0 if the other rank's number never arrived. Check the launch and "
      "the communication before the models: as many processes as the world size, a separate GPU "
      "for each, the same address and port for all; then a backend that fails or times out.");
}

void weigh_fingerprints(Explanation& explanation) {
  const auto operations = figures_of(explanation, "collective");
  const auto shapes = figures_of(explanation, "shape");
  if (operations.values.size() > 1) {
    explanation.seen.push_back(
        fmt::format("The operations differ ({}): the ranks are at different places in the program.",
                    fmt::join(operations.values, " and ")));
    if (operations.values.contains("BROADCAST")) {
      explanation.seen.emplace_back(
          "A forward of the wrapper starts with a BROADCAST if the module has buffers: that rank "
          "may be one forward ahead.");
      put(explanation, kRankLocalCollective, 1);
    }
  } else if (shapes.values.size() > 1) {
    explanation.seen.push_back(
        fmt::format("The same operation has different shapes ({}): in a backward pass, these are "
                    "buckets of different parameters.",
                    fmt::join(shapes.values, " and ")));
    put(explanation, kRankDependentGraph, 1);
  }
  const auto late = behind(explanation.fields, "number");
  if (!late.empty())
    explanation.seen.push_back(
        fmt::format("{} issued fewer calls than the others.", "R" + ranks_of(late).substr(1)));
}

void weigh_suspects(Explanation& explanation) {
  if (explanation.suspects.empty()) return;
  explanation.seen.push_back(fmt::format("Look at {} first.", ranks_of(explanation.suspects)));
}

}  // namespace ddp_doctor
