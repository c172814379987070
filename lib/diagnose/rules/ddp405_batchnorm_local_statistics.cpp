// SPDX-License-Identifier: BSD-3-Clause
// DDP405: BatchNorm in training mode with few samples per rank, and no SyncBatchNorm.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"

namespace ddp_doctor {
namespace {

// Users of object detection models report the effect for batches up to this size (mmdetection's and
// detectron2's threads on small batches, docs/rules/DDP405.md).
constexpr std::int64_t kFewSamples = 8;

Verdict check_batchnorm_local_statistics(const Timeline& timeline) {
  if (!timeline.wrapper) return Undecidable{"there is no DistributedDataParallel wrapper"};
  const std::string subject = fmt::format("wrapper {}", *timeline.wrapper);
  const Fact* norms = timeline.fact(timeline.first_rank(), subject, "batchnorm");
  if (norms == nullptr) return std::vector<Finding>{};
  const auto counts = nlohmann::json::parse(norms->value);
  const int local = counts.at("modules").get<int>() - counts.at("synchronized").get<int>();
  const Fact* samples = timeline.fact(timeline.first_rank(), subject, "batchnorm_samples");
  if (local == 0) return std::vector<Finding>{};
  if (samples == nullptr)
    return Undecidable{"no BatchNorm ran in training mode inside a wrapper's forward"};
  const auto batch = nlohmann::json::parse(samples->value).get<std::int64_t>();
  if (batch > kFewSamples) return std::vector<Finding>{};

  Finding finding = finding_of(kBatchnormLocal);
  finding.ranks = timeline.ranks();
  finding.first_step = samples->step;
  finding.where = where(timeline, "wrap");
  finding.evidence["modules"] = local;
  finding.evidence["samples_per_rank"] = batch;
  finding.message = fmt::format(
      "{} normalized over the {} of one rank instead of all {} of the step.",
      count_of(static_cast<std::size_t>(local), "BatchNorm layer"),
      count_of(static_cast<std::size_t>(batch), "sample"), batch * timeline.run.world_size);
  finding.prescription = {
      "Convert the model before wrapping it: torch.nn.SyncBatchNorm.convert_sync_batchnorm(model). "
      "Or use GroupNorm or larger batches.",
      ""};
  return std::vector{finding};
}

}  // namespace

const Rule kBatchnormLocal = {
    .code = "DDP405",
    .name = "batchnorm-local-statistics",
    .severity = Severity::kAdvice,
    .headline = "BatchNorm with few samples per rank and no SyncBatchNorm",
    .check = check_batchnorm_local_statistics,
    .scope = Scope::kWrapper,
    .needs = {.ranks = 2}};

}  // namespace ddp_doctor
