// SPDX-License-Identifier: BSD-3-Clause
#include "lib/parity/causes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

constexpr double kSameWeights = 1e-3;
constexpr double kSameShares = 1e-4;  // what rounding may do to weights that are solved for
// What the statistics of a smaller batch do to a loss, and to gradients; relative.
constexpr double kAboutTheSame = 0.1;
constexpr double kRoughly = 0.3;

class Cause {
 public:
  Cause(const Comparison& comparison, int world_size)
      : seen_(comparison), step_(comparison.step()), world_size_(world_size) {}

  std::vector<Finding> findings() const {
    if (auto scaled = as_scale()) return {*scaled};
    if (auto weighted = as_weighting()) return {*weighted};
    if (auto parts = as_parameters()) return {*parts};
    std::vector<Finding> findings;
    if (auto scaled = as_scale_beside_forward()) findings.push_back(*scaled);
    findings.push_back(as_forward());
    return findings;
  }

 private:
  Finding begin(const Rule& rule) const {
    Finding finding = finding_of(rule);
    finding.first_step = step_.step;
    finding.ranks.resize(static_cast<std::size_t>(world_size_));
    std::iota(finding.ranks.begin(), finding.ranks.end(), 0);
    const auto seen = seen_.compared();
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
    if (!equal_are_negligible()) return {};
    const double k = seen_.total().scale(kOfRanks, kOfOne);
    for (const auto& [parameter, own, rest, clean] : seen_.different()) {
      const auto& products = parameter->products;
      if (products.distance(kOfRanks, kOfOne, k) >
          seen_.allowed(products) * std::max(1.0, std::abs(k)))
        return {};
    }
    return of_scale(k, fmt::format("{:.4f} times those that one process computes on the same "
                                   "samples; nothing else differs (rest {:.1e}, rounding alone "
                                   "{:.1e})",
                                   k, relative_rest(k), seen_.compared().rounding));
  }

  // DDP701, where a module makes every gradient a little different (BatchNorm): the loss and the
  // gradients differ by the same factor, and it is one that a module hardly makes.
  std::optional<Finding> as_scale_beside_forward() const {
    if (!step_.module || step_.module->type == "input" || !knows_loss()) return {};
    const double of_loss = mean_loss() / step_.loss;
    const double of_gradients = seen_.total().scale(kOfRanks, kOfOne);
    for (const double k : {double(world_size_), 1.0 / world_size_}) {
      const bool fits =
          std::abs(of_loss / k - 1) <= kAboutTheSame && std::abs(of_gradients / k - 1) <= kRoughly;
      if (!fits) continue;  // nor does NaN, as of losses that are zero
      Finding finding = of_scale(
          k, fmt::format("about {:.2f} times those that one process computes on the same samples, "
                         "as the loss is ({:.6g} on average over the ranks, {:.6g} in one process)",
                         of_gradients, mean_loss(), step_.loss));
      finding.certainty = Certainty::kLikely;
      return finding;
    }
    return {};
  }

  Finding of_scale(double k, const std::string& seen) const {
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
          "torch.distributed.nn.functional.all_gather, which gradients pass. Where the loss is a "
          "mean and nothing is gathered, look for a second division of the gradients";
    } else {
      reason = " A factor of the loss, of the gradient division or of the accumulation differs";
      finding.prescription.text = fmt::format(
          "look for a factor {:.4g} in the loss, in the division by the number of "
          "micro-batches, or in how gradients are reduced",
          k);
    }
    finding.message = fmt::format("In step {} the synchronized gradients of {} are {}.{}.",
                                  step_.step, all(), seen, reason);
    return finding;
  }

  double relative_rest(double k) const {
    const double length = seen_.total().norm(kOfRanks);
    return length > 0 ? seen_.total().distance(kOfRanks, kOfOne, k) / length : 0.0;
  }

  // Parameters with equal gradients are only those with none to speak of.
  bool equal_are_negligible() const {
    const auto& equal = seen_.equal();
    return std::all_of(equal.begin(), equal.end(), [&](const ParityParameter* parameter) {
      return seen_.is_negligible(parameter->products);
    });
  }

  // DDP702
  std::optional<Finding> as_weighting() const {
    const std::size_t count = step_.alone.size();
    if (count < 2) return {};
    const auto ranks = mixture_of(seen_.total(), kOfRanks, kAlone, count);
    const auto one = mixture_of(seen_.total(), kOfOne, kAlone, count);
    if (ranks.rest > kMultiple * seen_.allowed_rest() ||
        one.rest > kMultiple * seen_.allowed_rest())
      return {};
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
      as = fmt::format(", in proportion to the number of {} ({:g})",
                       basis == "samples" ? basis : "elements of " + basis,
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
        "the same samples weighs them {:.4f}{}. The ranks' losses are means over unequal {}, "
        "and the mean over the ranks is a mean of these means.",
        step_.step, of, fmt::join(shown.first, ", "), fmt::join(shown.second, ", "), as,
        basis.empty() ? "counts or weights" : "counts");
    const std::string over_all =
        micro_batches() > 1 ? "all ranks and micro-batches of the step" : "all ranks";
    finding.prescription.text =
        basis.empty()
            ? fmt::format(
                  "divide by the same on every rank: all_reduce what the mean is divided by (a "
                  "count, or a sum of weights) over {}, then loss = total * world_size / that sum",
                  over_all)
            : fmt::format(
                  "divide by the count of {}: sum the loss over the rank's own {}, all_reduce "
                  "their count, then loss = total * world_size / count",
                  over_all,
                  basis == "samples"        ? basis
                  : basis.ends_with("-100") ? "tokens"
                                            : "terms");
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
          double largest = seen_.allowed(products);  // each of them rounds, too
          for (std::size_t i = 0; i < weights.size(); ++i)
            largest = std::max(largest, floor_of(seen_.figures()) * std::abs(weights[i]) *
                                            products.norm(kAlone + i));
          return distance_to_mixture(products, target, kAlone, weights) <= largest;
        });
  }

  // What the weights are proportional to: over the whole step, or in each micro-batch of it.
  std::string proportional(const std::vector<double>& weights) const {
    std::vector<std::string> names;
    for (const auto& [name, counts] : step_.counts) names.push_back(name);
    // Samples first: what else is proportional to them says no more. Then what a loss ignores, all
    // tokens before those that predict the next.
    std::stable_partition(names.begin(), names.end(), [](const std::string& name) {
      return name.find(" but the first ") == std::string::npos;
    });
    std::stable_partition(names.begin(), names.end(),
                          [](const std::string& name) { return name.ends_with("-100"); });
    std::stable_partition(names.begin(), names.end(),
                          [](const std::string& name) { return name == "samples"; });
    // Several counts may be nearly proportional to each other: the nearest one, or the first of
    // those that are as near.
    std::string nearest;
    double least = seen_.figures().low_precision ? kSameWeights : kSameShares;
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
    const auto ranks = mixture_of(seen_.total(), kOfRanks, kAlone, step_.alone.size());
    const auto one = mixture_of(seen_.total(), kOfOne, kAlone, step_.alone.size());
    return ranks.rest <= kMultiple * seen_.allowed_rest() &&
           one.rest > kMultiple * seen_.allowed_rest();
  }

  // All that differ are parameters that one rank has alone, and their gradients the same multiple.
  bool experts_are_multiplied() const {
    const auto& different = seen_.different();
    const double k = different.front().k;
    return k > 1.5 && std::abs(k - std::round(k)) < 0.01 &&
           std::all_of(different.begin(), different.end(), [&](const Comparison::Different& one) {
             return one.clean && one.parameter->rank && std::abs(one.k - k) < 0.01;
           });
  }

  // DDP703
  std::optional<Finding> as_parameters() const {
    // Where batches are dealt out, those of their samples are the ranks' own gradients.
    if (step_.module || (mixes_samples() && !(seen_.figures().dealt && same_loss()))) return {};
    const bool some_equal = !equal_are_negligible();
    const bool each_scaled =
        std::all_of(seen_.different().begin(), seen_.different().end(),
                    [](const Comparison::Different& one) { return one.clean; });
    if (!some_equal && !each_scaled && !same_loss()) return {};
    Finding finding = begin(kParityParameters);
    std::vector<std::string> described;
    auto& table = finding.evidence["factors"] = nlohmann::ordered_json::array();
    for (const auto& [parameter, k, rest, clean] : seen_.different()) {
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
    if (seen_.different().size() > kNamed)
      described.push_back(fmt::format("and {} more", seen_.different().size() - kNamed));
    finding.message = fmt::format(
        "In step {} the synchronized gradients of {} of {} parameters are not those that one "
        "process computes on the same samples, but these multiples of them: {}. {}.",
        step_.step, seen_.different().size(), step_.parameters.size(), fmt::join(described, "; "),
        seen_.equal().empty() ? "No parameter has the right gradient"
        : seen_.equal().size() == 1
            ? fmt::format("The other one, {}, is right", seen_.equal().front()->name)
            : fmt::format("The other {} are right", seen_.equal().size()));
    finding.prescription.text =
        experts_are_multiplied()
            ? "divide these gradients by the number of ranks: each of these parameters is on one "
              "rank and gets the gradients of all ranks' samples, which are added up, while those "
              "of the other parameters are averaged"
            : "look for what reaches only these parameters: a term of the loss that one rank adds "
              "alone, features gathered without their gradients (all_gather), a share that is "
              "summed twice or never";
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

  // C++ programs need not say it.
  bool knows_loss() const { return !step_.rank_losses.empty(); }

  bool same_loss() const {
    return knows_loss() && std::abs(mean_loss() - step_.loss) <=
                               (seen_.figures().low_precision ? 1e-2 : 1e-5) * std::abs(step_.loss);
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
    if (knows_loss()) {
      finding.evidence["losses"] = step_.rank_losses;
      finding.evidence["loss_of_one_process"] = step_.loss;
    }
    const std::string losses =
        knows_loss()
            ? fmt::format("the loss is {:.6g} on average over the ranks and {:.6g} in one process",
                          mean_loss(), step_.loss)
            : "the program does not say what its loss is";
    if (step_.module) {
      finding.evidence["module"] = step_.module->name;
      finding.evidence["module_type"] = step_.module->type;
      finding.message = fmt::format(
          "The forward itself differs: in step {} the outputs of {} are not those of one process "
          "on the same samples (by {:.1e} of their size); it is the first such module. As a "
          "result {}, and the gradients differ.",
          step_.step, module_name(), step_.module->distance, losses);
    } else if (!seen_.equal().empty()) {
      for (const auto& one : seen_.different())
        finding.parameters.push_back({one.parameter->name, {}});
      finding.message = fmt::format(
          "In step {} the gradients of {} of {} parameters are those of each rank's samples by "
          "themselves, and one process computes others: a term of the loss depends on the whole "
          "batch ({}).",
          step_.step, seen_.different().size(), step_.parameters.size(), losses);
    } else {
      finding.message = fmt::format(
          "{}: in step {} {}, on the same samples, and no scale and no weighting of the ranks "
          "explains the gradients.",
          knows_loss() ? "The loss itself differs" : "The gradients differ", step_.step, losses);
    }
    finding.prescription.text =
        normalizes()
            ? "if the statistics of each rank's batch are too few, use "
              "torch.nn.SyncBatchNorm.convert_sync_batchnorm(model); otherwise this is what "
              "BatchNorm does under data parallelism: --ignore parity-forward"
        : step_.module && step_.module->type == "Embedding" && seen_.figures().dealt
            ? "look at what it is given: where the ranks have parts of a sequence, positions count "
              "from the beginning of the whole, not of the part"
            : "look for what mixes the samples of a batch, and so depends on how they are dealt "
              "out to the ranks: negatives of the same batch, statistics of a batch, a mean over "
              "other "
              "counts";
    return finding;
  }

  const Comparison& seen_;
  const ParityStep& step_;
  const int world_size_;
};

}  // namespace

std::vector<Finding> causes_of(const Comparison& comparison, int world_size) {
  return Cause(comparison, world_size).findings();
}

}  // namespace ddp_doctor
