// SPDX-License-Identifier: BSD-3-Clause
// A rule: one kind of finding. Each is one small file under lib/diagnose/rules/, an entry in the
// table below, and a page in docs/rules/.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lib/diagnose/finding.h"
#include "lib/timeline/timeline.h"

namespace ddp_doctor {

// Why a rule could not be decided on this run.
struct Undecidable {
  std::string reason;
};
// The result of a rule: findings, none if there is nothing to report, or that it could not be
// decided.
using Verdict = std::variant<std::vector<Finding>, Undecidable>;

// What a rule checks: all ranks that run together, the ranks that train one model, or each wrapper
// of these separately if there are several.
enum class Scope { kJob, kModel, kWrapper };

// What its findings are worth where ranks hold different parts of one model, or are given the same
// data on purpose.
enum class OnMesh {
  kUndecided,   // the cause may be on purpose, or a bug: nothing is proved
  kNotChecked,  // it does not apply: another rule judges this there, or nothing is wrong with it
  kHolds,       // it asks for a tensor's replicas (Timeline::replicas_of), or for none
};

inline constexpr char kNoCompleteStep[] = "no step was completed by every rank";

// What must be there before a rule can decide anything.
struct Needs {
  std::size_t ranks = 1;   // with a record
  std::size_t steps = 0;   // that every rank completed, and that were examined
  bool all_ranks = false;  // of the job: it compares with the mean, or reports that something is
                           // needed on no rank. Otherwise what it reports holds for those it has.
};

struct Rule;

// A finding that another one explains is nested under it.
struct Effect {
  const Rule* rule;
  std::string_view kind = "";        // of the effect (evidence "kind"); empty: any
  std::string_view cause_kind = "";  // of the finding that explains it; empty: any
  std::string_view except = "";      // kind of the effect that it does not explain
};

// Which parameters without a gradient a finding names: those of some ranks or steps, or of all.
enum class NamesUnused { kNone, kSomewhere, kEverywhere };

struct Rule {
  const char* code;      // "DDP101": public, never renumbered
  const char* name;      // "wrapper-bypassed": public
  Severity severity;     // the usual severity; a finding may be less severe
  const char* headline;  // what happened, in half a line
  Verdict (*check)(const Timeline& timeline);
  Scope scope = Scope::kModel;
  Needs needs = {};
  // It judges single steps, or the state before the first one, and counts those that are wrong:
  // more steps can only add to them. So what it finds is true while the program runs. The others
  // wait for the end: weights may still be averaged, a parameter used, a wrapper made, buffers
  // brought together.
  bool lasting = false;
  OnMesh on_mesh = OnMesh::kUndecided;
  std::string_view holds_on_mesh = "";  // findings of this kind hold there in any case
  // It compares reduced gradients with the local ones.
  bool of_reductions = false;
  // It says that replicas differ, but not why.
  bool only_a_difference = false;
  // It says that a rank failed: its evidence has the error.
  bool rank_failed = false;
  // Its cure is to call the wrapper in the place of the module inside it.
  bool cured_by_wrapper_call = false;
  NamesUnused names_unused = NamesUnused::kNone;
  // The rules whose findings follow from one of this rule.
  std::vector<Effect> explains = {};
};

// All rules, ordered by code.
std::span<const Rule* const> all_rules();
const Rule* find_rule(std::string_view code_or_name);
// The rule of a finding; one without a code if this version does not have it.
const Rule& rule_of(const Finding& finding);
// It says why ranks waited for each other without end.
bool is_hang(const Finding& finding);

// A finding of `rule` with its code, name and severity filled in.
Finding finding_of(const Rule& rule);

// The table. Codes are public and never renumbered.
extern const Rule kWrapperBypassed;          // DDP101
extern const Rule kGradientsOutOfSync;       // DDP102
extern const Rule kStepWithoutSync;          // DDP103
extern const Rule kPartialSync;              // DDP104
extern const Rule kParametersReplaced;       // DDP105
extern const Rule kParametersOutside;        // DDP106
extern const Rule kGradientScale;            // DDP107
extern const Rule kClipBeforeSync;           // DDP108
extern const Rule kRepeatedBackward;         // DDP109
extern const Rule kAutogradGradBypass;       // DDP110
extern const Rule kRankDependentManualSync;  // DDP111
extern const Rule kWrongProcessGroup;        // DDP112
extern const Rule kRedundantSync;            // DDP113
extern const Rule kNotReducedOverDimension;  // DDP114
extern const Rule kCorruptedReduction;       // DDP115
extern const Rule kGatherWithoutGradient;    // DDP116
extern const Rule kUnusedParameters;         // DDP201
extern const Rule kRankDependentGraph;       // DDP202
extern const Rule kStepDependentGraph;       // DDP203
extern const Rule kNeedlessFindUnused;       // DDP204
extern const Rule kMarkedReadyTwice;         // DDP205
extern const Rule kStaticGraphViolated;      // DDP206
extern const Rule kStaticGraphApplicable;    // DDP207
extern const Rule kUnusedButUpdated;         // DDP208
extern const Rule kWeightsDrift;             // DDP301
extern const Rule kInitialWeightsDiffer;     // DDP302
extern const Rule kBuffersDrift;             // DDP303
extern const Rule kOptimizerDiffers;         // DDP304
extern const Rule kUpdateOutsideOptimizer;   // DDP305
extern const Rule kModelMismatch;            // DDP306
extern const Rule kOptimizerStale;           // DDP307
extern const Rule kUpdateUndone;             // DDP308
extern const Rule kDuplicateData;            // DDP401
extern const Rule kNonfiniteGradient;        // DDP402
extern const Rule kLossScaleDiffers;         // DDP403
extern const Rule kSamplerOrderRepeats;      // DDP404
extern const Rule kBatchnormLocal;           // DDP405
extern const Rule kStalledRank;              // DDP501
extern const Rule kCollectiveMismatch;       // DDP502
extern const Rule kUnevenInputs;             // DDP503
extern const Rule kRankCrashed;              // DDP504
extern const Rule kRankLocalCollective;      // DDP505
extern const Rule kNumericsChanged;          // DDP601
extern const Rule kGraphChanged;             // DDP602
extern const Rule kParityScale;              // DDP701
extern const Rule kParityWeighting;          // DDP702
extern const Rule kParityParameters;         // DDP703
extern const Rule kParityForward;            // DDP704

inline constexpr const Rule* kRules[] = {
    &kWrapperBypassed,
    &kGradientsOutOfSync,
    &kStepWithoutSync,
    &kPartialSync,
    &kParametersReplaced,
    &kParametersOutside,
    &kGradientScale,
    &kClipBeforeSync,
    &kRepeatedBackward,
    &kAutogradGradBypass,
    &kRankDependentManualSync,
    &kWrongProcessGroup,
    &kRedundantSync,
    &kNotReducedOverDimension,
    &kCorruptedReduction,
    &kGatherWithoutGradient,
    &kUnusedParameters,
    &kRankDependentGraph,
    &kStepDependentGraph,
    &kNeedlessFindUnused,
    &kMarkedReadyTwice,
    &kStaticGraphViolated,
    &kStaticGraphApplicable,
    &kUnusedButUpdated,
    &kWeightsDrift,
    &kInitialWeightsDiffer,
    &kBuffersDrift,
    &kOptimizerDiffers,
    &kUpdateOutsideOptimizer,
    &kModelMismatch,
    &kOptimizerStale,
    &kUpdateUndone,
    &kDuplicateData,
    &kNonfiniteGradient,
    &kLossScaleDiffers,
    &kSamplerOrderRepeats,
    &kBatchnormLocal,
    &kStalledRank,
    &kCollectiveMismatch,
    &kUnevenInputs,
    &kRankCrashed,
    &kRankLocalCollective,
    &kNumericsChanged,
    &kGraphChanged,
    &kParityScale,
    &kParityWeighting,
    &kParityParameters,
    &kParityForward,
};

}  // namespace ddp_doctor
