// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>

#include "lib/diagnose/baseline_rules.h"

namespace ddp_doctor {

std::span<const Rule> all_rules() {
  static const std::array kRules = {
      kWrapperBypassed,
      kGradientsOutOfSync,
      kStepWithoutSync,
      kPartialSync,
      kParametersReplaced,
      kParametersOutside,
      kGradientScale,
      kClipBeforeSync,
      kRepeatedBackward,
      kAutogradGradBypass,
      kRankDependentManualSync,
      kWrongProcessGroup,
      kRedundantSync,
      kNotReducedOverDimension,
      kCorruptedReduction,
      kUnusedParameters,
      kRankDependentGraph,
      kStepDependentGraph,
      kNeedlessFindUnused,
      kMarkedReadyTwice,
      kStaticGraphViolated,
      kStaticGraphApplicable,
      kUnusedButUpdated,
      kWeightsDrift,
      kInitialWeightsDiffer,
      kBuffersDrift,
      kOptimizerDiffers,
      kUpdateOutsideOptimizer,
      kModelMismatch,
      kOptimizerStale,
      kDuplicateData,
      kNonfiniteGradient,
      kLossScaleDiffers,
      kSamplerOrderRepeats,
      kBatchnormLocal,
      kStalledRank,
      kCollectiveMismatch,
      kUnevenInputs,
      kRankCrashed,
      kRankLocalCollective,
      kNumericsChanged,
      kGraphChanged,
  };
  return kRules;
}

const Rule* find_rule(std::string_view code_or_name) {
  const auto rules = all_rules();
  const auto found = std::find_if(rules.begin(), rules.end(), [&](const Rule& rule) {
    return code_or_name == rule.code || code_or_name == rule.name;
  });
  return found == rules.end() ? nullptr : &*found;
}

Finding finding_of(const Rule& rule) {
  Finding finding;
  finding.rule = rule.code;
  finding.name = rule.name;
  finding.severity = rule.severity;
  return finding;
}

const char* name_of(Severity severity) {
  switch (severity) {
    case Severity::kAdvice:
      return "advice";
    case Severity::kWarning:
      return "warning";
    case Severity::kError:
      return "error";
  }
  return "";
}

const char* name_of(Certainty certainty) {
  return certainty == Certainty::kCertain ? "certain" : "likely";
}

}  // namespace ddp_doctor
