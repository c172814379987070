// SPDX-License-Identifier: BSD-3-Clause
// Warnings of the reducer, printed once or from time to time.
#include <array>

#include "lib/explain/known_texts.h"

namespace ddp_doctor {
namespace {

const KnownText kNothingUnused = {
    .id = "needless-find-unused",
    .severity = Severity::kAdvice,
    .certainty = Certainty::kLikely,
    .depth = Depth::kWarning,
    .rules = {&kNeedlessFindUnused},
    .phrases = {{"find_unused_parameters=True was specified in DDP constructor, but did not find"}},
    .versions = {{"unused parameters in the forward pass", "1.9 and later"},
                 {"find_unused_parameters=True was specified", "1.8"}},
    .says = "find_unused_parameters=True is set, but every parameter was used in this iteration.",
    .means = {"Training is correct. The flag costs a traversal of the graph and an all-reduce in "
              "every step, and prevents the buckets from being rebuilt.",
              "It is printed once per process, for one iteration: a branch that is rarely taken "
              "may need the flag later."},
    .causes = {"The flag was set as a precaution, or is the default of a framework.",
               "Outputs that the loss does not use count as used here: some parameters may still "
               "get no gradient."},
    .run =
        "shows whether any parameter was unused on any rank in any step, and what the flag costs",
};

const KnownText kGradStrides = {
    .id = "gradient-strides",
    .severity = Severity::kAdvice,
    .certainty = Certainty::kLikely,
    .depth = Depth::kWarning,
    .rules = {},
    .phrases = {{"Grad strides do not match bucket view strides"}},
    .versions = {{"Grad strides do not match", "1.7 and later"}},
    .says = "A gradient has a different memory layout than its bucket, and needs an extra copy.",
    .means = {"Harmless: the results are the same, and one copy is slower. If the strides of "
              "parameters differed between ranks, the constructor would raise."},
    .causes = {"Convolutions with a 1x1 kernel, dimensions of size 1, transposed operations.",
               "The memory format was changed after wrapping: call .to(memory_format=...) before "
               "wrapping."},
    .run = "is not needed for this",
};

const KnownText kCreateGraph = {
    .id = "create-graph",
    .severity = Severity::kWarning,
    .certainty = Certainty::kLikely,
    .depth = Depth::kWarning,
    .rules = {&kRepeatedBackward, &kGradientsOutOfSync},
    .phrases = {{"Using DistributedDataParallel with create_graph=True"}},
    .versions = {{"create_graph=True", "about 1.10 and later"}},
    .says =
        "backward(create_graph=True) was called on a wrapped model: gradients of gradients are not "
        "averaged.",
    .means = {"Autograd does not track the all-reduce. Second-order terms stay local to each rank, "
              "and the replicas may diverge without an error.",
              "It is printed only every 1000th time."},
    .causes = {"A gradient penalty, meta-learning, or Hessian products. A second backward through "
               "the same forward is not reduced at all (DDP109)."},
    .run = "shows whether the gradients that the optimizer uses agree across ranks",
};

}  // namespace

KnownTexts warning_texts() {
  static constexpr std::array kTexts = {&kNothingUnused, &kGradStrides, &kCreateGraph};
  return kTexts;
}

}  // namespace ddp_doctor
