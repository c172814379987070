// SPDX-License-Identifier: BSD-3-Clause
// Errors of the wrapper's constructor: torch/nn/parallel/distributed.py, and
// verify_params_across_processes in torch/csrc/distributed/c10d/reducer.cpp.
#include <array>

#include "lib/explain/known_texts.h"

namespace ddp_doctor {
namespace {

const KnownText kParameterCounts = {
    .id = "parameter-counts",
    .severity = Severity::kError,
    .certainty = Certainty::kCertain,
    .depth = Depth::kCause,
    .rules = {&kModelMismatch},
    .phrases = {{"DDP expects same model across all ranks"}},
    .versions = {{"DDP expects same model", "about 1.12 and later"}},
    .says = "The ranks wrapped models with different numbers of trainable parameters.",
    .means = {"It is raised in the wrapper's constructor, before any training.",
              "Only the number, sizes and strides are compared. Names, dtypes and order may differ "
              "without an error."},
    .causes =
        {"The model is built from the rank's own data (classes, vocabulary, an optional head). "
         "Decide it on rank 0 and broadcast the decision.",
         "requires_grad differs: layers are frozen, or a checkpoint is loaded, only on some ranks.",
         "Ranks run different code or with different arguments, or belong to two jobs that use the "
         "same address."},
    .run = "names the parameters that some ranks lack, or have with a different shape or dtype",
    .read = read_counts,
    .weigh = weigh_counts,
};

const KnownText kParameterShapes = {
    .id = "parameter-shapes",
    .severity = Severity::kError,
    .certainty = Certainty::kLikely,
    .depth = Depth::kCause,
    .rules = {&kModelMismatch},
    .phrases = {{"appears not to match sizes of the same param"},
                {"appears not to match strides of the same param"}},
    .versions = {{"replicas[0][", "about 1.10 and earlier"}, {"params[", "about 1.11 and later"}},
    .says = "A parameter of this rank has different sizes or strides than rank 0's.",
    .means = {"It is raised in the wrapper's constructor, before any training. Ranks whose "
              "parameters match report a lost connection instead.",
              "The index counts trainable parameters from 0, with shared parameters counted once: "
              "[n for n, p in model.named_parameters() if p.requires_grad][index]."},
    .causes = {"The sizes depend on the rank's own data or configuration. Decide them on rank 0 "
               "and broadcast them.",
               "The strides differ because of .to(memory_format=...) on some ranks only.",
               "A failed communication can look the same: if the log also has a timeout, start "
               "with the timeout."},
    .run = "names the parameters that differ, with the shapes on each rank",
    .read = read_shapes,
};

const KnownText kNothingToTrain = {
    .id = "nothing-to-train",
    .severity = Severity::kError,
    .certainty = Certainty::kLikely,
    .depth = Depth::kCause,
    .rules = {},
    .phrases =
        {{"is not needed when a module doesn't have any parameter that requires a gradient"}},
    .says = "The module given to the wrapper has no parameter that requires a gradient.",
    .means =
        {"It is raised in the wrapper's constructor. A module without gradients needs no wrapper."},
    .causes = {"All parameters are frozen on this rank: do not wrap the module.",
               "Layers are unfrozen, or adapters added, after wrapping. The wrapper does not cover "
               "them (DDP106): do it before wrapping."},
    .run = "shows which parameters the optimizer updates but no wrapper covers",
};

}  // namespace

KnownTexts constructor_texts() {
  static constexpr std::array kTexts = {&kParameterCounts, &kParameterShapes, &kNothingToTrain};
  return kTexts;
}

}  // namespace ddp_doctor
