// SPDX-License-Identifier: BSD-3-Clause
// DDP401: several ranks train on the same data. Their local gradients are bit-identical, step after
// step; or what enters the wrapper is, and only their noise (dropout) differs; or their samplers do
// not divide the same order of the data.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "lib/diagnose/data_overlap.h"
#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

constexpr std::size_t kMinSteps = 4;

// The program's own hooks synchronize: the gradient after the backward is no longer local.
bool synchronized_in_backward(const TimelineStep& step) {
  const auto& calls = step.first()->calls;
  return std::any_of(calls.begin(), calls.end(),
                     [](const Collective& call) { return call.moment == "backward"; });
}

// Groups of ranks whose local gradients are equal for all parameters that have one; empty if too
// few were recorded, or if all are zero.
std::vector<std::vector<int>> ranks_with_equal_gradients(const Timeline& timeline,
                                                         const TimelineStep& step) {
  if (step.different_everywhere(Stage::kLocalGradient)) return {};
  const bool in_backward = synchronized_in_backward(step);
  std::map<std::vector<std::array<std::uint8_t, 16>>, std::vector<int>> by_gradients;
  for (int rank : timeline.ranks()) {
    std::vector<std::array<std::uint8_t, 16>> gradients;
    double norm = 0.0;
    for (int id : timeline.trainable()) {
      const auto usage = step.usage(rank, id);
      if (!usage || !usage->used) continue;
      const auto seen = in_backward ? step.find(rank, id, Stage::kLocalGradient)
                                    : local_gradient(timeline, step, rank, id);
      if (!seen) return {};
      gradients.push_back(seen->bits);
      norm += seen->l2_norm;
    }
    if (gradients.size() < 2 || norm == 0.0) return {};
    by_gradients[std::move(gradients)].push_back(rank);
  }
  std::vector<std::vector<int>> groups;
  for (auto& [gradients, ranks] : by_gradients) {
    if (ranks.size() > 1) groups.push_back(std::move(ranks));
  }
  return groups;
}

// An optimizer that steps after another one, on gradients of the same backward: these were compared
// in the other's step.
bool has_no_backward_of_its_own(const Timeline& timeline, const TimelineStep& step) {
  return std::ranges::all_of(timeline.ranks(), [&](int rank) {
    return std::ranges::none_of(timeline.trainable(), [&](int id) {
      const auto usage = step.usage(rank, id);
      return usage && usage->used;
    });
  });
}

// A few equal steps are chance, or a batch at the end of the data; nearly every step is a pattern.
bool is_pattern(std::size_t same, std::size_t seen) {
  return same >= kMinSteps && same * 10 >= seen * 8;
}

Prescription own_data() {
  return {
      "Give each rank its own part of the data: use a DistributedSampler or split_dataset_by_node, "
      "or select by rank and world size in an IterableDataset (samplers do not apply to it). Seed "
      "random noise differently on each rank.",
      ""};
}

// One wrapper, or one sharding, over all ranks: each of them is given its own samples.
bool wrapped_together(const Timeline& timeline) {
  const auto& layout = timeline.layout;
  if (!timeline.wrapper) return layout.model_parallel.empty() && !layout.replicated();
  const auto* ranks =
      timeline.fact(timeline.first_rank(), fmt::format("wrapper {}", *timeline.wrapper), "ranks");
  return ranks != nullptr && nlohmann::json::parse(ranks->value) == timeline.ranks();
}

// Ranks that share each sample's work talk to each other in forward and backward.
bool computes_together(const TimelineStep& step) {
  const auto& calls = step.first()->calls;
  return std::any_of(calls.begin(), calls.end(), [](const Collective& call) {
    return call.moment == "forward" || call.moment == "backward";
  });
}

// What entered the wrapper, by step.
std::map<std::int64_t, std::string> inputs_of(const Timeline& timeline, int rank) {
  std::map<std::int64_t, std::string> inputs;
  if (const auto* record = timeline.record(rank)) {
    for (const auto& fact : record->facts) {
      if (fact.subject == "inputs" && fact.key == "checksum") inputs[fact.step] = fact.value;
    }
  }
  return inputs;
}

// The same inputs, new ones in each step, though other gradients.
std::vector<Finding> same_inputs(const Timeline& timeline) {
  if (!wrapped_together(timeline)) return {};
  std::map<int, std::map<std::int64_t, std::string>> inputs;
  for (int rank : timeline.ranks()) inputs[rank] = inputs_of(timeline, rank);
  std::set<int> ranks;
  std::set<std::string> batches;
  std::size_t alike = 0;
  std::size_t seen = 0;
  Finding finding = finding_of(kDuplicateData);
  for (const auto* step : complete_steps(timeline)) {
    std::map<std::string, std::vector<int>> by_input;
    for (const auto& [rank, of_rank] : inputs) {
      if (const auto at = of_rank.find(step->number); at != of_rank.end())
        by_input[at->second].push_back(rank);
    }
    if (by_input.empty()) continue;
    if (computes_together(*step)) return {};
    ++seen;
    bool same = false;
    for (const auto& [input, group] : by_input) {
      if (group.size() < 2) continue;
      batches.insert(input);
      ranks.insert(group.begin(), group.end());
      same = true;
    }
    alike += same ? 1 : 0;
    if (same && !finding.first_step) finding.first_step = step->number;
  }
  if (!is_pattern(alike, seen) || batches.size() < kMinSteps) return {};
  finding.certainty = Certainty::kLikely;
  finding.where = where(timeline, timeline.wrapper ? "forward" : "backward");
  finding.ranks.assign(ranks.begin(), ranks.end());
  finding.evidence["kind"] = "inputs";
  finding.evidence["steps_alike"] = alike;
  finding.evidence["steps_seen"] = seen;
  finding.message = fmt::format(
      "The same inputs entered the model on {} in {} of {}, new ones each time: these ranks train "
      "on the same samples{}.",
      ranks_of(finding.ranks), alike, count_of(seen, "step"),
      timeline.wrapper ? ". Their gradients differ only by what is random inside the model, such "
                         "as dropout"
                       : "");
  finding.prescription = own_data();
  return {finding};
}

// The latest value of a sampler's fact, by rank; empty if some rank has none.
std::vector<nlohmann::json> of_sampler(const Timeline& timeline, const std::string& sampler,
                                       const char* key, std::optional<std::int64_t> step = {}) {
  std::vector<nlohmann::json> values;
  for (int rank : timeline.ranks()) {
    const auto* fact = timeline.fact(rank, sampler, key, step);
    if (fact == nullptr) return {};
    values.push_back(nlohmann::json::parse(fact->value));
  }
  return values;
}

bool all_equal(const std::vector<nlohmann::json>& values) {
  return std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) == values.end();
}

// The epochs of the first pass over the data that is not of the same epoch on every rank; by rank.
std::vector<nlohmann::json> epochs_apart(const Timeline& timeline, const std::string& sampler) {
  std::map<std::int64_t, std::vector<nlohmann::json>> epochs;  // by pass
  for (int rank : timeline.ranks()) {
    for (const auto& fact : timeline.record(rank)->facts) {
      if (fact.subject != sampler || fact.key != "pass") continue;
      const auto value = nlohmann::json::parse(fact.value);
      epochs[value.at(0)].push_back(value.at(1));
    }
  }
  for (const auto& [pass, by_rank] : epochs) {
    if (by_rank.size() == timeline.ranks().size() && !all_equal(by_rank)) return by_rank;
  }
  return {};
}

std::string values_by_rank(const std::vector<nlohmann::json>& values) {
  std::string text;
  for (const auto& value : values) text += (text.empty() ? "" : ", ") + value.dump();
  return text;
}

// Ranks whose DistributedSamplers, iterated at one line, do not divide one order of the data.
std::vector<Finding> samplers_apart(const Timeline& timeline) {
  if (!wrapped_together(timeline)) return {};
  for (const auto& site : timeline.record(timeline.first_rank())->sites) {
    if (!number_in(site.what, "sampler")) continue;
    const bool one_line = std::ranges::all_of(timeline.ranks(), [&](int rank) {
      const auto* record = timeline.record(rank);
      return record != nullptr && std::ranges::any_of(record->sites, [&](const Site& other) {
               return other.what == site.what && other.file == site.file && other.line == site.line;
             });
    });
    const auto replicas =
        one_line ? of_sampler(timeline, site.what, "replicas") : std::vector<nlohmann::json>{};
    if (replicas.empty()) continue;
    std::vector<nlohmann::json> counts;
    for (const auto& value : replicas) counts.push_back(value.at(1));
    std::vector<nlohmann::json> apart;
    std::string what;
    const auto shuffles = of_sampler(timeline, site.what, "shuffle");
    const bool shuffled = std::ranges::all_of(shuffles, [](const auto& on) { return on == true; });
    if (!all_equal(counts)) {
      what = "num_replicas";
      apart = counts;
    } else if (shuffled && counts.front().is_number() && counts.front() > 1) {
      what = "seed";
      apart = of_sampler(timeline, site.what, "seed");
      if (all_equal(apart)) {
        what = "epoch";
        apart = epochs_apart(timeline, site.what);
      }
      if (all_equal(apart)) continue;
    } else {
      continue;
    }
    Finding finding = finding_of(kDuplicateData);
    finding.where = Where{site.file, site.line, site.via};
    finding.ranks = timeline.ranks();
    finding.first_step = std::max<std::int64_t>(site.step, 1);
    finding.evidence["kind"] = "sampler";
    finding.evidence["differs"] = what;
    finding.evidence["by_rank"] = apart;
    finding.message = fmt::format(
        "The ranks' DistributedSamplers have different values of {} ({}, by rank): they do not "
        "divide the same order of the data, so some samples are trained on several "
        "ranks and others on none.",
        what, values_by_rank(apart));
    finding.prescription = {
        "Construct the sampler with the same seed and num_replicas on every rank, and call "
        "sampler.set_epoch(epoch) with the same epoch on all of them. Only its rank differs.",
        ""};
    return {finding};
  }
  return {};
}

// Parts of the data that are not disjoint.
std::vector<Finding> overlapping_parts(const Timeline& timeline) {
  if (!wrapped_together(timeline) || std::ranges::any_of(timeline.steps, [](const auto& step) {
        return step.complete() && computes_together(step);
      }))
    return {};
  const auto overlap = overlap_of_data(timeline);
  if (!overlap) return {};
  Finding finding = finding_of(kDuplicateData);
  finding.certainty = Certainty::kLikely;
  finding.where = where(timeline, "forward");
  finding.ranks = overlap->ranks;
  finding.first_step = overlap->first_step;
  finding.evidence["kind"] = "overlap";
  finding.evidence["samples_in_common"] = overlap->common;
  finding.evidence["samples_of_a_rank"] = overlap->each;
  finding.evidence["last_step"] = overlap->last_step;
  finding.message = fmt::format(
      "In steps {} to {} {} of the {} samples that {} was given came to {}, too, while none came "
      "twice to one rank: the ranks' parts of the data overlap, so others are trained on by "
      "nobody.",
      overlap->first_step, overlap->last_step, overlap->common, overlap->each,
      ranks_of({overlap->ranks.back()}), ranks_of({overlap->ranks.front()}));
  finding.prescription = {
      "Let every rank make the same order of the data (one seed and epoch for all, a generator of "
      "its own) before it takes its part, as DistributedSampler does: a seed that contains the "
      "rank, or a generator that one rank used more often, gives each another order.",
      ""};
  return {finding};
}

// A model beside a wrapped one whose gradients nobody synchronizes: a reference that every rank
// trains alike on purpose.
bool is_a_reference(const Timeline& timeline, const std::vector<const TimelineStep*>& steps) {
  if (timeline.has_wrapper()) return false;
  const bool beside = std::any_of(timeline.tensors.begin(), timeline.tensors.end(),
                                  [](const TensorInfo& tensor) { return tensor.wrapper; });
  return beside && std::all_of(steps.begin(), steps.end(), [](const TimelineStep* step) {
           return !synchronizes_by_hand(*step->first());
         });
}

Verdict check_duplicate_data(const Timeline& timeline) {
  const auto steps = complete_steps(timeline);
  if (steps.size() < kMinSteps)
    return Undecidable{fmt::format("fewer than {} steps were completed by every rank", kMinSteps)};
  if (is_a_reference(timeline, steps))
    return Undecidable{"nothing synchronizes this model: every rank may train it alike on purpose"};
  std::set<int> ranks;
  std::set<Ranks> alike;
  std::size_t same = 0;
  std::size_t seen = 0;
  Finding finding = finding_of(kDuplicateData);
  for (const auto* step : steps) {
    if (timeline.trainable().empty()) break;
    if (has_no_backward_of_its_own(timeline, *step)) continue;
    const auto groups = ranks_with_equal_gradients(timeline, *step);
    ++seen;
    if (groups.empty()) continue;
    ++same;
    if (!finding.first_step) finding.first_step = step->number;
    for (const auto& group : groups) {
      ranks.insert(group.begin(), group.end());
      alike.insert(group);
    }
  }
  if (!is_pattern(same, seen)) {
    for (const auto& check : {samplers_apart, same_inputs, overlapping_parts}) {
      if (auto found = check(timeline); !found.empty()) return found;
    }
    return std::vector<Finding>{};
  }
  finding.where = where(timeline, "backward");
  finding.ranks.assign(ranks.begin(), ranks.end());
  finding.evidence["steps_alike"] = same;
  finding.evidence["steps_seen"] = steps.size();
  finding.message = fmt::format(
      "Before the reduction the gradients of {}{} are identical, bit for bit, for every parameter "
      "in {} of {}: these ranks compute the same batch, and the extra ranks contribute nothing.",
      ranks_of(finding.ranks), alike.size() > 1 ? ", in groups," : "", same,
      count_of(steps.size(), "step"));
  finding.prescription = own_data();
  return std::vector{finding};
}

}  // namespace

const Rule kDuplicateData = {.code = "DDP401",
                             .name = "duplicate-data",
                             .severity = Severity::kWarning,
                             .headline = "several ranks train on the same data",
                             .check = check_duplicate_data,
                             .scope = Scope::kWrapper,
                             .needs = {.ranks = 2},
                             .on_mesh = OnMesh::kNotChecked};

}  // namespace ddp_doctor
