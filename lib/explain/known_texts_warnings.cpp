// SPDX-License-Identifier: BSD-3-Clause
// What the reducer warns of, once or now and then.
#include <array>

#include "lib/explain/known_texts.h"

namespace ddp_doctor {
namespace {

const KnownText kNeedlessFindUnused = {
    .id = "needless-find-unused",
    .severity = Severity::kAdvice,
    .certainty = Certainty::kLikely,
    .depth = Depth::kWarning,
    .rules = {"DDP204"},
    .phrases = {{"find_unused_parameters=True was specified in DDP constructor, but did not find"}},
    .versions = {{"unused parameters in the forward pass", "1.9 and later"},
                 {"find_unused_parameters=True was specified", "1.8"}},
    .says = "find_unused_parameters=True, and in this iteration every parameter was used.",
    .means =
        {"Training is right. The flag costs a walk over the graph and an all-reduce in every "
         "step, and keeps the buckets in their first order.",
         "It is printed once per process, about one iteration: a branch that is taken rarely may "
         "need the flag later."},
    .causes = {"The flag was set as a precaution, or is a framework's default.",
               "Outputs that the loss leaves out count as used here: parameters without a gradient "
               "may still exist."},
    .run =
        "tells whether any parameter was unused on any rank in any step, and what the flag costs",
};

const KnownText kGradStrides = {
    .id = "gradient-strides",
    .severity = Severity::kAdvice,
    .certainty = Certainty::kLikely,
    .depth = Depth::kWarning,
    .rules = {},
    .phrases = {{"Grad strides do not match bucket view strides"}},
    .versions = {{"Grad strides do not match", "1.7 and later"}},
    .says = "A gradient lies in memory in another order than its bucket, and is copied once more.",
    .means = {"Harmless: results are the same, a copy slower. Parameters whose strides differ "
              "between ranks would raise in the constructor."},
    .causes = {"Convolutions with a 1x1 kernel, dimensions of size 1, transposed operations.",
               "The memory format was changed after wrapping: .to(memory_format=...) before it."},
    .run = "need not be run for this",
};

const KnownText kCreateGraph = {
    .id = "create-graph",
    .severity = Severity::kWarning,
    .certainty = Certainty::kLikely,
    .depth = Depth::kWarning,
    .rules = {"DDP109", "DDP102"},
    .phrases = {{"Using DistributedDataParallel with create_graph=True"}},
    .versions = {{"create_graph=True", "about 1.10 and later"}},
    .says =
        "backward(create_graph=True) was called on a wrapped model: gradients of gradients are "
        "not averaged.",
    .means = {"Autograd does not see the all-reduce. Second-order terms are each rank's own, and "
              "replicas may drift apart without an error.",
              "It is printed every 1000th time only."},
    .causes = {"A gradient penalty, meta-learning, Hessian products. A second backward through the "
               "same forward is not reduced at all (DDP109)."},
    .run = "shows whether the gradients that the optimizer uses agree across ranks",
};

}  // namespace

KnownTexts warning_texts() {
  static constexpr std::array kTexts = {&kNeedlessFindUnused, &kGradStrides, &kCreateGraph};
  return kTexts;
}

}  // namespace ddp_doctor
