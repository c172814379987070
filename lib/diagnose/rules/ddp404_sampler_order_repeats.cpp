// SPDX-License-Identifier: BSD-3-Clause
// DDP404: a DistributedSampler shuffles, but set_epoch is never called: every epoch has the same
// order. It may be the same object each time, or one made anew for each epoch from the same seed.

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

struct Pass {
  std::string sampler;
  std::int64_t epoch = 0;
  std::int64_t backwards = 0;  // before it started
  std::int64_t step = 0;       // the step in progress when it started
};

// All samplers' passes over their data, in order.
std::vector<Pass> passes_of(const RankRecord& record) {
  std::vector<Pass> passes;
  for (const auto& fact : record.facts) {
    if (!fact.is("sampler", "pass")) continue;
    const auto value = nlohmann::json::parse(fact.value);
    if (!value.at(1).is_number_integer()) continue;
    passes.push_back({fact.subject, value.at(1), value.at(2), fact.step});
  }
  return passes;
}

// The training sampler: the last one that started before the first backward. Others may be for
// validation, where repeating the order is fine.
std::string training_sampler(const std::vector<Pass>& passes) {
  std::string sampler;
  for (const auto& pass : passes) {
    if (pass.backwards == 0) sampler = pass.sampler;
  }
  return sampler;
}

// What decides a sampler's order, except its epoch; nothing if the data set is unknown.
std::optional<std::string> order_of(const Timeline& timeline, const std::string& sampler) {
  std::string text;
  for (const char* key : {"data", "seed", "replicas", "shuffle"}) {
    const auto* fact = timeline.fact(timeline.first_rank(), sampler, key);
    if (fact == nullptr) return {};
    text += fact->value + ";";
  }
  const Site* site = timeline.site(sampler);
  return site == nullptr ? text : text + fmt::format("{}:{}", site->file, site->line);
}

// `sampler`, and those that the same line made from the same data with the same seed.
std::set<std::string> made_alike(const Timeline& timeline, const std::vector<Pass>& passes,
                                 const std::string& sampler) {
  std::set<std::string> alike = {sampler};
  const auto order = order_of(timeline, sampler);
  for (const auto& pass : passes) {
    if (order && !alike.contains(pass.sampler) && order_of(timeline, pass.sampler) == order)
      alike.insert(pass.sampler);
  }
  return alike;
}

// Passes of these samplers with training steps.
std::vector<Pass> trained(const std::vector<Pass>& passes, const std::set<std::string>& samplers,
                          std::int64_t last_step) {
  std::vector<Pass> own;
  for (const auto& pass : passes) {
    if (!samplers.contains(pass.sampler)) continue;
    // The previous pass trained nothing: its count of backwards equals this one's.
    if (!own.empty() && own.back().backwards == pass.backwards) own.pop_back();
    own.push_back(pass);
  }
  if (!own.empty() && own.back().step > last_step) own.pop_back();
  return own;
}

Verdict check_sampler_order_repeats(const Timeline& timeline) {
  const auto* record = timeline.record(timeline.first_rank());
  if (record == nullptr) return Undecidable{"rank 0 has no record"};
  const auto all = passes_of(*record);
  const std::string sampler = training_sampler(all);
  const auto* shuffles = timeline.fact(timeline.first_rank(), sampler, "shuffle");
  if (shuffles == nullptr || shuffles->value != "true" || record->steps.empty())
    return std::vector<Finding>{};
  const auto samplers = made_alike(timeline, all, sampler);
  const auto passes = trained(all, samplers, record->steps.back().step);
  std::size_t repeated = 0;
  const Pass* first = nullptr;
  for (std::size_t i = 1; i < passes.size(); ++i) {
    if (passes[i].epoch != passes[i - 1].epoch) continue;
    ++repeated;
    if (first == nullptr) first = &passes[i];
  }
  if (first == nullptr) return std::vector<Finding>{};
  Finding finding = finding_of(kSamplerOrderRepeats);
  finding.where = where(timeline, sampler);
  finding.ranks = timeline.ranks();
  finding.first_step = first->step;
  finding.evidence["passes"] = passes.size();
  finding.evidence["repeated"] = repeated;
  finding.evidence["epoch"] = first->epoch;
  finding.message = fmt::format(
      "A DistributedSampler with shuffle=True made {} passes over its data, {} of them with epoch "
      "number {} again, as in the pass before: passes with the same epoch number have the same "
      "order.",
      passes.size(), repeated, first->epoch);
  finding.prescription = {"Call sampler.set_epoch(epoch) before each epoch.", ""};
  if (samplers.size() > 1)
    finding.prescription.text =
        "Make the sampler once, and call its set_epoch(epoch) before each epoch.";
  return std::vector{finding};
}

}  // namespace

const Rule kSamplerOrderRepeats = {.code = "DDP404",
                                   .name = "sampler-order-repeats",
                                   .severity = Severity::kWarning,
                                   .headline = "a sampler shuffles, but its epoch number repeats",
                                   .check = check_sampler_order_repeats,
                                   .on_mesh = OnMesh::kHolds};

}  // namespace ddp_doctor
