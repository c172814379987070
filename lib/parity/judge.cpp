// SPDX-License-Identifier: BSD-3-Clause
#include "lib/parity/judge.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

// A difference counts beyond so many times what the order of the samples does to a gradient,
constexpr double kMultiple = 20.0;
// and beyond this share of it: sums of other lengths round differently.
constexpr double kFloor = 1e-5;
// float16 and bfloat16: a few units of their last place.
constexpr double kLowPrecisionFloor = 3e-2;
// A gradient that is zero but for rounding counts as rounding of the whole.
constexpr double kTiny = 1e-6;
constexpr double kSameWeights = 1e-3;
constexpr double kSameShares = 1e-4;  // what rounding may do to weights that are solved for
// Where the order of the samples changes more of a gradient, it is not rounding that does it.
constexpr double kMostRounding = 0.05;
constexpr std::size_t kNamed = 6;

struct Scaled {
  const ParityParameter* parameter;
  double k;
  double rest;  // relative to one process' gradient
  bool clean;   // nothing but k explains the difference
};

// What rounding may do to a gradient in any case.
double floor_of(const ParityFigures& figures) {
  return figures.low_precision ? kLowPrecisionFloor : kFloor;
}

Products total_of(const ParityStep& step) {
  Products total;
  for (const auto& parameter : step.parameters) total += parameter.products;
  return total;
}

double least_allowed(const Products& products, const Products& total, double floor) {
  return floor * std::max(products.norm(kOfOne), kTiny / kFloor * total.norm(kOfOne));
}

// Whether one process computes something else on the same samples and weights in a later step: it
// counts its steps, or carries something from one to the next.
bool changes_with_steps(const ParityFigures& figures) {
  return std::any_of(figures.steps.begin(), figures.steps.end(), [&](const ParityStep& step) {
    if (!step.again) return false;
    const Products total = total_of(step);
    return std::any_of(step.parameters.begin(), step.parameters.end(), [&](const auto& parameter) {
      const auto& products = parameter.products;
      return products.distance(*step.again, kOfOne) >
             least_allowed(products, total, floor_of(figures));
    });
  });
}

class StepJudge {
 public:
  StepJudge(const ParityStep& step, const ParityFigures& figures, int world_size)
      : step_(step),
        figures_(figures),
        world_size_(world_size),
        floor_(floor_of(figures)),
        changes_(changes_with_steps(figures)),
        total_(total_of(step)) {
    for (const auto& parameter : step.parameters) {
      const auto& products = parameter.products;
      if (products.distance(kOfRanks, kOfOne) <= allowed(products)) {
        equal_.push_back(&parameter);
        continue;
      }
      const double k = products.scale(kOfRanks, kOfOne);
      const double rest = products.distance(kOfRanks, kOfOne, k);
      const double length = products.norm(kOfOne);
      different_.push_back({&parameter, k, length > 0 ? rest / length : INFINITY,
                            length > 0 && rest <= allowed(products) * std::max(1.0, std::abs(k))});
    }
  }

  ComparedStep compared() const {
    const double length = total_.size() > 0 ? total_.norm(kOfOne) : 0.0;
    const auto relative = [&](std::size_t of) {
      const double distance = total_.size() > 0 ? total_.distance(of, kOfOne) : 0.0;
      return length > 0 ? distance / length : distance > 0 ? INFINITY : 0.0;
    };
    return {step_.step, step_.parameters.size(), equal_.size(), relative(kOfRanks),
            changes_ || figures_.dealt ? floor_ : relative(kPermuted)};
  }

  bool has_gradients() const {
    return total_.size() > 0 && (total_.norm(kOfRanks) > 0 || total_.norm(kOfOne) > 0);
  }

  bool differs() const { return !different_.empty(); }

  // Why one process is no reference, whatever the gradients are; empty if it is.
  std::string unusable() const {
    if (changes_ || compared().rounding <= kMostRounding) return {};
    if (const auto reason = irreproducible(); !reason.empty()) return reason;
    return fmt::format(
        "in step {} the order of the samples alone changes the gradients of one process by "
        "{:.0f} %, which is more than rounding: what it computes depends on this order, on "
        "chance, or on data that neither a DataLoader nor a model or loss function got",
        step_.step, 100 * std::min(1.0, compared().rounding));
  }

  // Why the difference may not be the ranks'; empty if it is.
  std::string doubt() const {
    if (const auto reason = irreproducible(); !reason.empty()) return reason;
    if (!figures_.frozen_differ.empty())
      return fmt::format(
          "{}, which no optimizer holds, has other weights on each rank, and one process has those "
          "of rank 0",
          fmt::join(figures_.frozen_differ, ", "));
    if (!figures_.random.empty() && !step_.parameters.empty() && total_.norm(kOfOne) == 0)
      return "one process has no gradients on these samples";
    if (step_.padded && !step_.alone.empty() &&
        total_.distance(step_.padded->alone, step_.padded->padded) > allowed(total_))
      return "the ranks' samples have different lengths, and padding them to the longest changes "
             "what the model computes";
    if (step_.module && step_.module->type == "input")
      return "the model gets other inputs in one process than the ranks' samples give it";
    return {};
  }

  // Why one process would compute something else if it did it again; empty if it would not.
  std::string irreproducible() const {
    for (const auto& where : figures_.random) {
      if (where.starts_with("in ")) return "random numbers are drawn " + where;
    }
    if (changes_)
      return "one process computes other gradients in a later step, on the same samples and with "
             "the same weights: the program counts its steps, as to anneal a term of its loss or "
             "to freeze a layer, or carries something else from one step to the next";
    return {};
  }

  Finding finding() const {
    if (auto scaled = as_scale()) return *scaled;
    if (auto weighted = as_weighting()) return *weighted;
    if (auto parts = as_parameters()) return *parts;
    return as_forward();
  }

 private:
  double allowed(const Products& products) const {
    const double least = least_allowed(products, total_, floor_);
    // The other order is computed in a later step.
    return changes_ ? least : std::max(least, kMultiple * products.distance(kPermuted, kOfOne));
  }

  Finding begin(const Rule& rule) const {
    Finding finding = finding_of(rule);
    finding.first_step = step_.step;
    finding.ranks.resize(static_cast<std::size_t>(world_size_));
    std::iota(finding.ranks.begin(), finding.ranks.end(), 0);
    const auto seen = compared();
    finding.evidence = {{"step", step_.step},
                        {"parameters", seen.parameters},
                        {"equal", seen.equal},
                        {"distance", seen.distance},
                        {"rounding", seen.rounding}};
    return finding;
  }

  std::string all() const {
    return step_.parameters.size() == 1 ? "the only parameter"
                                        : fmt::format("all {} parameters", step_.parameters.size());
  }

  bool is(double k, double value) const { return std::abs(k - value) <= 1e-3 * value; }

  // DDP701
  std::optional<Finding> as_scale() const {
    if (!equal_is_negligible()) return {};
    const double k = total_.scale(kOfRanks, kOfOne);
    for (const auto& [parameter, own, rest, clean] : different_) {
      const auto& products = parameter->products;
      if (products.distance(kOfRanks, kOfOne, k) > allowed(products) * std::max(1.0, std::abs(k)))
        return {};
    }
    Finding finding = begin(kParityScale);
    finding.evidence["k"] = k;
    const double ranks = world_size_;
    std::string reason;
    if (is(k, ranks)) {
      reason = fmt::format(
          " This is what a loss that is multiplied by the world size does, or a sum over the ranks "
          "where the mean belongs");
      finding.prescription.text = fmt::format(
          "remove the factor {}: DistributedDataParallel already takes the mean over the ranks. "
          "Where gradients are summed by hand, divide them by the world size",
          world_size_);
    } else if (is(k, 1 / ranks)) {
      reason =
          " This is what the mean over the ranks does to a loss that is a sum over the samples, or "
          "whose gradient flows through the rank's own share only (all_gather cuts the others')";
      finding.prescription.text =
          "make the loss a mean over the samples, or multiply it by the world size; gather with "
          "torch.distributed.nn.functional.all_gather, which gradients pass";
    } else {
      reason = " A factor of the loss, of the gradient division or of the accumulation differs";
      finding.prescription.text = fmt::format(
          "look for a factor {:.4g} in the loss, in the division by the number of "
          "micro-batches, or in how gradients are reduced",
          k);
    }
    finding.message = fmt::format(
        "In step {} the synchronized gradients of {} are {:.4f} times those that one process "
        "computes on the same samples; nothing else differs (rest {:.1e}, rounding alone "
        "{:.1e}).{}.",
        step_.step, all(), k, relative_rest(k), compared().rounding, reason);
    return finding;
  }

  double relative_rest(double k) const {
    const double length = total_.norm(kOfRanks);
    return length > 0 ? total_.distance(kOfRanks, kOfOne, k) / length : 0.0;
  }

  // Parameters with equal gradients are only those with none to speak of.
  bool equal_is_negligible() const {
    return std::all_of(equal_.begin(), equal_.end(), [&](const ParityParameter* parameter) {
      return parameter->products.norm(kOfOne) <= floor_ * kTiny / kFloor * total_.norm(kOfOne);
    });
  }

  // DDP702
  std::optional<Finding> as_weighting() const {
    const std::size_t count = step_.alone.size();
    if (count < 2) return {};
    const auto ranks = mixture_of(total_, kOfRanks, kAlone, count);
    const auto one = mixture_of(total_, kOfOne, kAlone, count);
    if (ranks.rest > kMultiple * allowed_rest() || one.rest > kMultiple * allowed_rest()) return {};
    if (same(ranks.weights, one.weights)) return {};
    // Weights are solved for from all gradients together, and hold for each of them.
    if (!hold(ranks.weights, kOfRanks) || !hold(one.weights, kOfOne)) return {};
    Finding finding = begin(kParityWeighting);
    finding.evidence["ranks"] = step_.alone;
    finding.evidence["weights"] = ranks.weights;
    finding.evidence["one_process"] = one.weights;
    const auto basis = proportional(one.weights);
    std::string as;
    if (!basis.empty()) {
      finding.evidence["proportional_to"] = basis;
      as = fmt::format(", in proportion to the {} ({:g})",
                       basis == "samples" ? "number of samples" : "number of " + basis,
                       fmt::join(step_.counts.at(basis), ", "));
    }
    auto shown = std::pair(by_rank(ranks.weights), by_rank(one.weights));
    std::string of = "ranks";
    if (same(shown.first, shown.second)) {
      shown = {ranks.weights, one.weights};
      of = "micro-batches, rank by rank,";
    }
    finding.message = fmt::format(
        "In step {} the synchronized gradient weighs the gradients of the {} {:.4f}; one process "
        "on "
        "the same samples weighs them {:.4f}{}. The ranks' losses are means over unequal counts, "
        "and the mean over the ranks is a mean of these means.",
        step_.step, of, fmt::join(shown.first, ", "), fmt::join(shown.second, ", "), as);
    finding.prescription.text = fmt::format(
        "divide by the count of all ranks: sum the loss over the rank's own {}, all_reduce their "
        "count{}, then loss = total * world_size / count",
        basis.empty() || basis == "samples" ? "samples"
        : basis.ends_with("-100")           ? "tokens"
                                            : "terms",
        micro_batches() > 1 ? " over all micro-batches of the step" : "");
    return finding;
  }

  std::size_t micro_batches() const {
    return static_cast<std::size_t>(
        std::count(step_.alone.begin(), step_.alone.end(), step_.alone.front()));
  }

  static bool same(const std::vector<double>& a, const std::vector<double>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](double x, double y) { return std::abs(x - y) <= kSameWeights; });
  }

  std::vector<double> by_rank(const std::vector<double>& weights) const {
    std::vector<double> sums(weights.size() / micro_batches());
    for (std::size_t i = 0; i < weights.size(); ++i) sums[i / micro_batches()] += weights[i];
    return sums;
  }

  bool hold(const std::vector<double>& weights, std::size_t target) const {
    return std::all_of(
        step_.parameters.begin(), step_.parameters.end(), [&](const ParityParameter& parameter) {
          const auto& products = parameter.products;
          double largest = allowed(products);  // each of them rounds, too
          for (std::size_t i = 0; i < weights.size(); ++i)
            largest = std::max(largest, floor_ * std::abs(weights[i]) * products.norm(kAlone + i));
          return distance_to_mixture(products, target, kAlone, weights) <= largest;
        });
  }

  // What rounding leaves of a fit to all gradients together.
  double allowed_rest() const {
    return std::max(total_.distance(kPermuted, kOfOne), floor_ / kMultiple * total_.norm(kOfOne));
  }

  // What the weights are proportional to: over the whole step, or in each micro-batch of it.
  std::string proportional(const std::vector<double>& weights) const {
    std::vector<std::string> names;
    for (const auto& [name, counts] : step_.counts) names.push_back(name);
    // Samples first: what else is proportional to them says no more. Then what a loss ignores.
    std::stable_partition(names.begin(), names.end(),
                          [](const std::string& name) { return name.ends_with("-100"); });
    std::stable_partition(names.begin(), names.end(),
                          [](const std::string& name) { return name == "samples"; });
    // Several counts may be nearly proportional to each other: the nearest one, or the first of
    // those that are as near.
    std::string nearest;
    double least = figures_.low_precision ? kSameWeights : kSameShares;
    for (const std::size_t groups : {std::size_t{1}, micro_batches()}) {
      for (const auto& name : names) {
        const double distance =
            farthest(shares(step_.counts.at(name), groups), shares(weights, groups));
        if (distance > (nearest.empty() ? least : least - kSameShares)) continue;
        nearest = name;
        least = distance;
      }
    }
    return nearest;
  }

  static double farthest(const std::vector<double>& a, const std::vector<double>& b) {
    if (a.empty() || a.size() != b.size()) return INFINITY;
    double largest = 0;
    for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
    return largest;
  }

  // Each as a share of those of its group: the i-th of every rank, or of all. Empty if a group is.
  static std::vector<double> shares(std::vector<double> values, std::size_t groups) {
    for (std::size_t group = 0; group < groups; ++group) {
      double sum = 0;
      for (std::size_t i = group; i < values.size(); i += groups) sum += values[i];
      if (!(sum > 0)) return {};
      for (std::size_t i = group; i < values.size(); i += groups) values[i] /= sum;
    }
    return values;
  }

  // The ranks' gradient is put together from those of their samples, and one process' is not: what
  // it computes of a sample depends on the others in the batch.
  bool mixes_samples() const {
    if (step_.alone.size() < 2) return false;
    const auto ranks = mixture_of(total_, kOfRanks, kAlone, step_.alone.size());
    const auto one = mixture_of(total_, kOfOne, kAlone, step_.alone.size());
    return ranks.rest <= kMultiple * allowed_rest() && one.rest > kMultiple * allowed_rest();
  }

  // DDP703
  std::optional<Finding> as_parameters() const {
    if (step_.module || mixes_samples()) return {};
    const bool some_equal = !equal_is_negligible();
    const bool each_scaled = std::all_of(different_.begin(), different_.end(),
                                         [](const Scaled& one) { return one.clean; });
    if (!some_equal && !each_scaled && !same_loss()) return {};
    Finding finding = begin(kParityParameters);
    std::vector<std::string> described;
    auto& table = finding.evidence["factors"] = nlohmann::ordered_json::array();
    for (const auto& [parameter, k, rest, clean] : different_) {
      finding.parameters.push_back({parameter->name, {}});
      table.push_back({{"parameter", parameter->name},
                       {"k", k},
                       {"rest", std::isfinite(rest) ? rest : -1.0},
                       {"cosine", cosine(parameter->products)}});
      if (described.size() < kNamed)
        described.push_back(
            clean ? fmt::format("{} {:.4f}", parameter->name, k)
            : std::isfinite(rest)
                ? fmt::format("{} {:.2f}, and something else of {:.2g} % of its length",
                              parameter->name, k, 100 * rest)
                : parameter->name + ", with no gradient in one process");
    }
    if (different_.size() > kNamed)
      described.push_back(fmt::format("and {} more", different_.size() - kNamed));
    finding.message = fmt::format(
        "In step {} the synchronized gradients of {} of {} parameters are not those that one "
        "process computes on the same samples, but these multiples of them: {}. {}.",
        step_.step, different_.size(), step_.parameters.size(), fmt::join(described, "; "),
        equal_.empty()       ? "No parameter has the right gradient"
        : equal_.size() == 1 ? fmt::format("The other one, {}, is right", equal_.front()->name)
                             : fmt::format("The other {} are right", equal_.size()));
    finding.prescription.text =
        "look for what reaches only these parameters: a term of the loss that one rank adds alone, "
        "features gathered without their gradients (all_gather), a share that is summed twice or "
        "never";
    return finding;
  }

  static double cosine(const Products& products) {
    const double lengths = products.norm(kOfRanks) * products.norm(kOfOne);
    return lengths > 0 ? products.at(kOfRanks, kOfOne) / lengths : 0.0;
  }

  double mean_loss() const {
    return step_.rank_losses.empty()
               ? 0.0
               : std::accumulate(step_.rank_losses.begin(), step_.rank_losses.end(), 0.0) /
                     static_cast<double>(step_.rank_losses.size());
  }

  bool same_loss() const {
    return std::abs(mean_loss() - step_.loss) <=
           (figures_.low_precision ? 1e-2 : 1e-5) * std::abs(step_.loss);
  }

  bool normalizes() const {
    return step_.module && step_.module->type.find("Norm") != std::string::npos;
  }

  std::string module_name() const {
    return step_.module->name.empty()
               ? step_.module->type
               : fmt::format("{} ({})", step_.module->name, step_.module->type);
  }

  // DDP704
  Finding as_forward() const {
    Finding finding = begin(kParityForward);
    finding.certainty = Certainty::kLikely;
    finding.evidence["losses"] = step_.rank_losses;
    finding.evidence["loss_of_one_process"] = step_.loss;
    const std::string losses =
        fmt::format("the loss is {:.6g} on average over the ranks and {:.6g} in one process",
                    mean_loss(), step_.loss);
    if (step_.module) {
      finding.evidence["module"] = step_.module->name;
      finding.evidence["module_type"] = step_.module->type;
      finding.message = fmt::format(
          "The forward itself differs: in step {} the outputs of {} are not those of one process "
          "on the same samples (by {:.1e} of their size); it is the first such module. As a "
          "result {}, and the gradients differ.",
          step_.step, module_name(), step_.module->distance, losses);
    } else if (!equal_.empty()) {
      for (const auto& one : different_) finding.parameters.push_back({one.parameter->name, {}});
      finding.message = fmt::format(
          "In step {} the gradients of {} of {} parameters are those of each rank's samples by "
          "themselves, and one process computes others: a term of the loss depends on the whole "
          "batch ({}).",
          step_.step, different_.size(), step_.parameters.size(), losses);
    } else {
      finding.message = fmt::format(
          "The loss itself differs: in step {} {}, on the same samples, and no scale and no "
          "weighting of the ranks explains the gradients.",
          step_.step, losses);
    }
    finding.prescription.text =
        normalizes()
            ? "if the statistics of each rank's batch are too few, use "
              "torch.nn.SyncBatchNorm.convert_sync_batchnorm(model); otherwise this is what "
              "BatchNorm does under data parallelism: --ignore parity-forward"
            : "look for what mixes the samples of a batch, and so depends on how they are dealt "
              "out to the ranks: negatives of the same batch, statistics of a batch, a mean over "
              "other "
              "counts";
    return finding;
  }

  const ParityStep& step_;
  const ParityFigures& figures_;
  const int world_size_;
  const double floor_;
  const bool changes_;
  const Products total_;
  std::vector<const ParityParameter*> equal_;
  std::vector<Scaled> different_;
};

}  // namespace

Parity judge_parity(const ParityFigures& figures, int world_size) {
  Parity parity;
  parity.inconclusive = figures.impossible;
  if (!figures.steps.empty())
    parity.notes.emplace_back(
        "changed in both runs: dropout and stochastic depth are off, torch.compile is off; the one "
        "process is given the samples and the weights of the ranks");
  if (figures.dealt)
    parity.notes.push_back(
        fmt::format("the program deals each batch out to its ranks, and as one process it took the "
                    "same samples by itself: what rounding alone does could not be measured, and "
                    "{:.0e} of a gradient is allowed for it",
                    floor_of(figures)));
  if (changes_with_steps(figures))
    parity.notes.push_back(fmt::format(
        "one process computes other gradients in later steps, on the same samples and with the "
        "same weights: what rounding alone does could not be measured, and {:.0e} of a gradient "
        "is allowed for it",
        floor_of(figures)));
  bool any = false;
  std::string unusable;  // some step: then the others agree by luck
  for (const auto& step : figures.steps) {
    const StepJudge judge(step, figures, world_size);
    if (unusable.empty() && !figures.low_precision) unusable = judge.unusable();
    parity.steps.push_back(judge.compared());
    any = any || judge.has_gradients();
    if (!step.not_told.empty()) {
      std::vector<FindingParameter> untold;
      for (const auto& name : step.not_told) untold.push_back({name, {}});
      const std::string note = fmt::format(
          "not compared with one process: {}, whose gradients could not be put together "
          "from the ranks' parts, or which had none on the ranks",
          list_of(untold, kNamed));
      if (std::find(parity.notes.begin(), parity.notes.end(), note) == parity.notes.end())
        parity.notes.push_back(note);
    }
    if (!parity.findings.empty()) continue;
    std::string doubt = judge.unusable();
    if (doubt.empty() && !judge.differs()) continue;
    if (doubt.empty()) doubt = judge.doubt();
    if (doubt.empty()) {
      parity.findings.push_back(judge.finding());
    } else if (parity.inconclusive.empty()) {
      parity.inconclusive = doubt;
    }
  }
  if (!unusable.empty()) {
    parity.findings.clear();
    if (parity.inconclusive.empty()) parity.inconclusive = unusable;
  }
  if (parity.inconclusive.empty() && !any)
    parity.inconclusive = "no parameter has a gradient that could be compared";
  return parity;
}

std::string summary_of(const Parity& parity, int world_size) {
  if (!parity.inconclusive.empty())
    return "cannot be compared with one process: " + parity.inconclusive;
  double distance = 0, rounding = 0;
  ComparedStep worst;  // optimizers that step in turn hold different parameters
  for (const auto& step : parity.steps) {
    const auto order = [](const ComparedStep& of) {
      return std::pair(of.parameters - of.equal, of.parameters);
    };
    if (order(step) >= order(worst)) worst = step;
    distance = std::max(distance, step.distance);
    rounding = std::max(rounding, step.rounding);
  }
  const bool differ = worst.equal < worst.parameters;
  return fmt::format(
      "gradients of {} are {}those of one process{}: {} of {} parameters within rounding in {} "
      "(largest difference {:.1e}; rounding alone {:.1e})",
      count_of(static_cast<std::size_t>(world_size), "rank"), differ ? "not " : "",
      differ ? ", and the finding is ignored" : "", worst.equal, worst.parameters,
      count_of(parity.steps.size(), "step"), distance, rounding);
}

}  // namespace ddp_doctor
