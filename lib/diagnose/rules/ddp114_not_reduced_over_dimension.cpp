// SPDX-License-Identifier: BSD-3-Clause
// DDP114: a replicated parameter's gradient was not reduced over one dimension of its mesh.
//
// True of every program with this bug: ranks that hold the same weight, and must go on doing so,
// give their optimizers different gradients for it, and the weights differ after the step. In a
// healthy program a gradient may still be Partial there, or the optimizer may reduce it itself: the
// weights are then the same after the step.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "lib/diagnose/averaging.h"
#include "lib/diagnose/facts.h"
#include "lib/diagnose/rank_set.h"
#include "lib/diagnose/rule.h"
#include "lib/placement/placement.h"
#include "lib/record/worker.h"
#include "lib/timeline/dimensions.h"

namespace ddp_doctor {
namespace {

// What each dimension did: whether the gradients are equal along it. `apart`: the groups of a
// dimension in `not_over` that have different ones.
struct Reduced {
  std::vector<Dimension> over, not_over, apart;
};

// Each group of `fine` is in one of `coarse`.
bool is_part_of(const Dimension& fine, const Dimension& coarse) {
  return std::all_of(fine.groups.begin(), fine.groups.end(), [&](const Ranks& group) {
    return std::any_of(coarse.groups.begin(), coarse.groups.end(), [&](const Ranks& whole) {
      return std::includes(whole.begin(), whole.end(), group.begin(), group.end());
    });
  });
}

std::vector<std::string> in_words(const std::vector<Dimension>& dimensions) {
  std::vector<std::string> words;
  for (const auto& dimension : dimensions) words.push_back(in_words(dimension));
  return words;
}

Reduced judge(const Timeline& timeline, const TimelineStep& step, int id) {
  Reduced reduced;
  std::map<int, std::size_t> part;  // by rank: its group of equal bits
  const auto alike = step.groups(id, Stage::kGradient, timeline.ranks());
  for (std::size_t i = 0; i < alike.size(); ++i) {
    for (const int rank : alike[i]) part[rank] = i;
  }
  const auto& replicas = timeline.replicas_of(id, Stage::kGradient);
  for (const auto& dimension : timeline.dimensions) {
    bool concerned = true;  // along it all hold replicas
    Dimension apart{dimension.name, {}};
    for (const auto& group : dimension.groups) {
      // Other stages of a pipeline lack the tensor.
      if (std::none_of(group.begin(), group.end(), [&](int rank) { return part.contains(rank); }))
        continue;
      concerned = concerned && std::any_of(replicas.begin(), replicas.end(), [&](const Ranks& r) {
                    return std::includes(r.begin(), r.end(), group.begin(), group.end());
                  });
      const bool equal = std::all_of(group.begin(), group.end(), [&](int rank) {
        return part.contains(rank) && part[rank] == part[group.front()];
      });
      if (!equal) apart.groups.push_back(group);
    }
    if (!concerned) continue;
    (apart.groups.empty() ? reduced.over : reduced.not_over).push_back(dimension);
    if (!apart.groups.empty()) reduced.apart.push_back(std::move(apart));
  }
  // A dimension that was flattened from others says nothing that these don't.
  const auto all = reduced.not_over;
  for (auto* some : {&reduced.not_over, &reduced.apart}) {
    std::erase_if(*some, [&](const Dimension& one) {
      const auto whole = std::find_if(all.begin(), all.end(), [&](const Dimension& dimension) {
        return dimension.name == one.name && is_part_of(one, dimension);
      });
      return std::any_of(all.begin(), all.end(), [&](const Dimension& other) {
        return other.groups != whole->groups && is_part_of(other, *whole);
      });
    });
  }
  return reduced;
}

// Ranks with another gradient than most of those that hold the same: what reduces it there does not
// reach them. Nothing where no gradient is that of most.
Ranks left_out(const Timeline& timeline, const TimelineStep& step, int id) {
  Ranks ranks;
  for (const auto& replicas : timeline.replicas_of(id, Stage::kGradient)) {
    auto alike = step.groups(id, Stage::kGradient, replicas);
    std::sort(alike.begin(), alike.end(),
              [](const Ranks& a, const Ranks& b) { return a.size() > b.size(); });
    if (alike.empty() || 2 * alike.front().size() <= replicas.size()) return {};
    for (auto one = std::next(alike.begin()); one != alike.end(); ++one)
      ranks.insert(ranks.end(), one->begin(), one->end());
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

// Ranks' samples of a gradient, before the program reduced it.
std::optional<Sample> own_gradient(const TimelineStep& step, int rank, int id) {
  const auto before = step.sample(rank, id, Stage::kCollectiveGradient);
  return before ? before : step.sample(rank, id, Stage::kLocalGradient);
}

// The program reduces other gradients over this dimension: to their sum (1), to their mean (1/n),
// or to another multiple of the sum; nothing where it reduces none, or not all alike.
std::optional<double> factor_of_others(const Timeline& timeline, const TimelineStep& step,
                                       const Dimension& dimension, const std::set<int>& at_fault) {
  constexpr double kTolerance = 1e-3;
  constexpr std::size_t kMinValues = 4;
  std::vector<double> factors;
  for (const int id : timeline.trainable()) {
    if (at_fault.contains(id)) continue;
    for (const auto& group : dimension.groups) {
      const auto equal = step.groups(id, Stage::kGradient, group);
      if (equal.size() != 1 || equal.front().size() != group.size()) continue;
      const auto after = step.sample(group.front(), id, Stage::kGradient);
      for (std::size_t i = 0; after && i < after->values.size(); ++i) {
        double sum = 0.0;
        double largest = 0.0;
        std::set<double> own;
        for (const int rank : group) {
          const auto before = own_gradient(step, rank, id);
          if (!before || before->values.size() <= i) return {};
          sum += before->values[i];
          largest = std::max(largest, std::abs(before->values[i]));
          own.insert(before->values[i]);
        }
        // Ranks that had the same show nothing, nor does a difference that rounding made.
        if (own.size() > 1 && std::abs(sum) > 0.1 * largest)
          factors.push_back(after->values[i] / sum);
      }
    }
  }
  if (factors.size() < kMinValues) return {};
  const bool alike = std::all_of(factors.begin(), factors.end(), [&](double factor) {
    return std::abs(factor - factors.front()) <= kTolerance * std::abs(factors.front());
  });
  return alike ? std::optional(factors.front()) : std::nullopt;
}

// The ranks along it compute one loss together, each the whole of it. Where a single number is
// reduced in backward, the loss was a sum of theirs, and its gradients have that factor.
bool share_a_loss(const std::vector<const TimelineStep*>& steps, const Dimension& dimension) {
  std::set<double> losses;
  for (const auto* step : steps) {
    for (const auto& group : dimension.groups) {
      const auto* first = step->at(group.front());
      if (!first->loss) return false;
      losses.insert(*first->loss);
      for (const int rank : group) {
        const auto& row = *step->at(rank);
        const bool scalar = std::any_of(
            row.calls.begin(), row.calls.end(),
            [](const Collective& call) { return call.moment == "backward" && call.numel == 1; });
        if (scalar || row.loss != first->loss) return false;
      }
    }
  }
  return losses.size() > 1;
}

// Along it the ranks have parts of layers, so that they work on each sample together, and no tokens
// are dealt out; yet their losses differ already in the first step.
bool losses_should_agree(const Timeline& timeline, const TimelineStep& step,
                         const Dimension& dimension) {
  const auto& group = dimension.groups.front();
  bool parts = false;
  for (const auto& [id, of] : timeline.placed().of) {
    parts = parts || std::none_of(of.weight.begin(), of.weight.end(), [&](const Ranks& ranks) {
              return std::includes(ranks.begin(), ranks.end(), group.begin(), group.end());
            });
  }
  if (!parts || step.number != 1) return false;
  std::set<double> losses;
  for (const int rank : group) {
    const auto* row = step.at(rank);
    if (row == nullptr || !row->loss) return false;
    const bool deals = std::any_of(row->calls.begin(), row->calls.end(), [](const auto& call) {
      return call.op.starts_with("all_to_all");
    });
    if (deals) return false;
    losses.insert(*row->loss);
  }
  return losses.size() > 1;
}

// The collectives of one of its groups.
std::vector<const Collective*> calls_along(const Timeline& timeline, const Dimension& dimension) {
  std::vector<const Collective*> calls;
  for (const auto& group : dimension.groups) {
    const auto name =
        group == timeline.ranks() ? std::string() : fmt::format("{}", fmt::join(group, ","));
    const auto* record = timeline.record(group.front());
    if (record == nullptr) continue;
    for (const auto& step : record->steps) {
      for (const auto& call : step.calls) {
        if (call.group == name) calls.push_back(&call);
      }
    }
  }
  return calls;
}

// Along it the ranks exchange activations in forward passes, and nothing in backward ones: no
// gradient of the layers' inputs, each rank's being that of its own part only. What PyTorch itself
// issues in backward is not among the calls.
bool nothing_comes_back(const Timeline& timeline, const std::vector<const Collective*>& calls) {
  if (!timeline.layout.placements.empty()) return false;
  for (const int rank : timeline.ranks()) {
    const auto* record = timeline.record(rank);
    if (record == nullptr || std::ranges::any_of(record->facts, [](const Fact& fact) {
          return fact.subject == "activations" && fact.key == "backward";
        }))
      return false;
  }
  return std::ranges::any_of(
      calls, [](const auto* call) { return call->numel > 1 && call->moment == "forward"; });
}

bool reduce_gradients(const std::vector<const Collective*>& calls) {
  return std::ranges::any_of(calls,
                             [](const auto* call) { return call->target.starts_with("gradient"); });
}

// What makes the whole gradient of what the ranks along a dimension have, and why. No name: nothing
// tells.
struct Operation {
  std::string name;  // "sum", "mean"
  std::string reason;
};
Operation operation_along(const Timeline& timeline, const std::vector<const TimelineStep*>& steps,
                          const TimelineStep& step, const Dimension& dimension,
                          const std::set<int>& parameters) {
  const auto averages = [&](int id) {
    const auto& name = timeline.tensors[static_cast<std::size_t>(id)].name;
    const auto said = timeline.layout.placements.find(name);
    if (said == timeline.layout.placements.end()) return false;
    const auto& source = said->second.front().placement.source;
    return source == "fully_shard" || source == "FullyShardedDataParallel";
  };
  const auto size = static_cast<double>(dimension.groups.front().size());
  if (const auto factor = factor_of_others(timeline, step, dimension, parameters)) {
    const char* reason = "as the program does with its other gradients";
    if (std::abs(*factor - 1.0) < 1e-3) return {"sum", reason};
    if (std::abs(*factor * size - 1.0) < 1e-3) return {"mean", reason};
    return {};
  }
  if (share_a_loss(steps, dimension))
    return {"sum", "as these ranks compute one loss, and each has a share of its gradient"};
  if (!std::all_of(parameters.begin(), parameters.end(), averages)) return {};
  const auto* fact = timeline.fact(timeline.first_rank(), "fully_shard", "factors");
  const auto factors =
      fact == nullptr ? nlohmann::json::array() : nlohmann::json::parse(fact->value);
  if (factors.empty()) return {"mean", "as fully_shard averages over its ranks"};
  if (factors.size() == 1 && factors[0].at("factor") == 1.0)
    return {"sum", "as fully_shard sums over its ranks (set_gradient_divide_factor(1.0))"};
  return {};
}

// All of these were left out of a reduction over the same dimension.
std::optional<Dimension> missing_dimension(const Timeline& timeline, const TimelineStep& step,
                                           const std::set<int>& parameters) {
  std::optional<Dimension> missing;
  for (const int id : parameters) {
    const auto reduced = judge(timeline, step, id);
    auto not_over = reduced.not_over;
    if (not_over.size() == 1 && not_over.front().groups != reduced.apart.front().groups) return {};
    if (not_over.empty()) not_over.push_back({"", timeline.replicas_of(id, Stage::kGradient)});
    if (not_over.size() > 1 || (missing && missing->groups != not_over.front().groups)) return {};
    missing = not_over.front();
  }
  return missing;
}

// By PyTorch or the user.
bool is_said(const Timeline& timeline, int id) {
  const auto placed = timeline.placed().of.find(id);
  if (placed != timeline.placed().of.end())
    return placed->second.source != PlacementSource::kInferred;
  return timeline.layout.placements.contains(timeline.tensors[static_cast<std::size_t>(id)].name);
}

// Parameters of a job on a mesh whose replicas got different gradients, and differ since.
std::set<int> apart_in(const Timeline& timeline, const TimelineStep& step) {
  std::set<int> apart;
  const auto weights = differing(timeline, step, Stage::kWeight);
  for (const int id : differing(timeline, step, Stage::kGradient)) {
    const bool on_mesh =
        !timeline.layout.model_parallel.empty() || timeline.placed().of.contains(id);
    const bool both = std::find(weights.begin(), weights.end(), id) != weights.end();
    if (on_mesh && both) apart.insert(id);
  }
  return apart;
}

// It was apart in the first of these steps in which it has a gradient. Once weights differ, all
// that is computed from them does, too.
bool begins_it(const Timeline& timeline, const std::vector<const TimelineStep*>& steps, int id) {
  const auto has_gradient = [&](const TimelineStep* step) {
    return std::ranges::any_of(*step->here, [&](int rank) {
      const auto seen = step->find(rank, id, Stage::kGradient);
      return seen && seen->l2_norm != 0.0;
    });
  };
  const auto begin = std::ranges::find_if(steps, has_gradient);
  return begin != steps.end() && apart_in(timeline, **begin).contains(id);
}

Verdict check_not_reduced_over_dimension(const Timeline& timeline) {
  if (!timeline.on_mesh()) return std::vector<Finding>{};
  if (const char* reason = why_apart(timeline)) return Undecidable{reason};
  const auto steps = complete_steps(timeline);
  Finding finding = finding_of(kNotReducedOverDimension);
  std::set<int> parameters;
  std::size_t affected = 0;
  const TimelineStep* first = nullptr;
  for (const auto* step : steps) {
    const auto apart = apart_in(timeline, *step);
    if (apart.empty()) continue;
    ++affected;
    parameters.insert(apart.begin(), apart.end());
    if (first == nullptr) first = step;
  }
  if (first == nullptr) return std::vector<Finding>{};
  const std::vector<const TimelineStep*> since(std::ranges::find(steps, first), steps.end());
  std::erase_if(parameters, [&](int id) { return !begins_it(timeline, since, id); });
  const int one = *apart_in(timeline, *first).begin();
  const Reduced reduced = judge(timeline, *first, one);
  const auto over = in_words(reduced.over);
  const auto not_over = in_words(reduced.apart);
  const Ranks outside = left_out(timeline, *first, one);
  finding.ranks = outside.empty() ? timeline.ranks() : outside;
  finding.first_step = first->number;
  finding.where = where_stepped(timeline, finding.first_step);
  finding.parameters = parameters_of(timeline, parameters);
  finding.evidence["parameters_apart"] = parameters.size();
  finding.evidence["steps_affected"] = affected;
  finding.evidence["steps_seen"] = steps.size();
  finding.evidence["not_reduced_over"] = not_over;
  finding.evidence["reduced_over"] = over;
  const bool certain = std::all_of(parameters.begin(), parameters.end(),
                                   [&](int id) { return is_said(timeline, id); });
  if (!certain) finding.certainty = Certainty::kLikely;
  auto replicas = timeline.replicas_of(one, Stage::kGradient);
  std::erase_if(replicas, [](const Ranks& ranks) { return ranks.size() < 2; });
  const auto list = [](const std::vector<std::string>& texts) {
    std::string text;
    for (const auto& each : texts) text += (text.empty() ? "" : " and ") + each;
    return text;
  };
  std::string how = "the gradients were not reduced over all of these ranks";
  if (!outside.empty()) {
    how = fmt::format("{} {} a different gradient", ranks_of(outside),
                      outside.size() == 1 ? "has" : "have");
  } else if (!not_over.empty()) {
    how = fmt::format("the gradients were never reduced over {}{}", list(not_over),
                      over.empty() ? "" : ", only over " + list(over));
  }
  finding.message = fmt::format(
      "{}: ranks {} hold the same weight{}, but at optimizer.step the gradients differ in {} of "
      "{}, "
      "and from then on the weights differ, too: {}.",
      list_of(finding.parameters), in_braces(replicas), parameters.size() == 1 ? "" : "s", affected,
      count_of(steps.size(), "step"), how);
  finding.prescription = {
      "All-reduce these gradients over the ranks that hold the same weight, after backward and "
      "before clipping and optimizer.step: a sum where the ranks compute one loss together (tensor "
      "and sequence parallel), a mean where each rank's loss is a mean over its own samples or "
      "tokens (data parallel, mostly context and expert parallel).",
      ""};
  if (!outside.empty()) {
    finding.prescription.text =
        "Reduce these gradients on every rank that holds the same weight: look for a condition on "
        "the rank, for a process group without it, and for what changes a gradient after it was "
        "reduced.";
    return std::vector{finding};
  }
  // Strategies are applied to programs in Python.
  const bool possible = timeline.record(timeline.first_rank())->header.probe != "cpp";
  const auto dimension = possible ? missing_dimension(timeline, *first, parameters) : std::nullopt;
  const auto calls =
      dimension ? calls_along(timeline, *dimension) : std::vector<const Collective*>{};
  if (dimension && !reduce_gradients(calls) && losses_should_agree(timeline, *first, *dimension)) {
    finding.evidence["losses_differ"] = true;
    finding.prescription.text = fmt::format(
        "The ranks along {} have parts of layers and work on each sample together, but their "
        "losses differ already in the first step. Check first that they get the same batch and "
        "draw the same random numbers, as for dropout outside of the parts; gradients that differ "
        "for this reason need no reduction.",
        in_words(*dimension));
    return std::vector{finding};
  }
  if (dimension && nothing_comes_back(timeline, calls)) {
    finding.evidence["kind"] = "backward";
    finding.prescription.text = fmt::format(
        "The ranks along {} exchange activations in the forward pass and nothing in the backward "
        "pass. Where a layer is split among them, all-reduce the gradient of its input in "
        "backward (Megatron-LM's copy_to_tensor_model_parallel_region): what is before it then "
        "gets the same gradient on these ranks. To reduce the gradients of these parameters "
        "instead would count several times what comes past the layer, as through a residual "
        "connection.",
        in_words(*dimension));
    return std::vector{finding};
  }
  if (dimension) {
    const auto operation = operation_along(timeline, steps, *first, *dimension, parameters);
    if (operation.name.empty()) return std::vector{finding};
    const std::string name =
        dimension->name.empty() ? RankSet(dimension->groups.front()).text() : dimension->name;
    finding.evidence["reduction"] = {{"dimension", in_words(*dimension)},
                                     {"groups", dimension->groups},
                                     {"operation", operation.name}};
    finding.prescription.strategy = std::string(kAllReduceDimension) + name;
    finding.prescription.text = fmt::format(
        "All-reduce these gradients over {}, after backward and before clipping and "
        "optimizer.step: their {}, {}.",
        in_words(*dimension), operation.name, operation.reason);
  }
  return std::vector{finding};
}

}  // namespace

const Rule kNotReducedOverDimension = {
    .code = "DDP114",
    .name = "not-reduced-over-dimension",
    .severity = Severity::kError,
    .headline = "a gradient was not reduced over one dimension of the mesh",
    .check = check_not_reduced_over_dimension,
    .needs = {.ranks = 2, .steps = 1},
    .on_mesh = OnMesh::kHolds,
    .explains = {{&kGradientsOutOfSync}, {&kPartialSync}, {&kWrongProcessGroup}, {&kWeightsDrift}}};

}  // namespace ddp_doctor
