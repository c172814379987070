// SPDX-License-Identifier: BSD-3-Clause
// What the wrapper's constructor says: torch/nn/parallel/distributed.py, and
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
    .rules = {"DDP306"},
    .phrases = {{"DDP expects same model across all ranks"}},
    .versions = {{"DDP expects same model", "about 1.12 and later"}},
    .says = "The ranks wrapped models with different numbers of trainable parameters.",
    .means = {"It is raised in the wrapper's constructor: nothing was trained yet.",
              "Only the number, the sizes and the strides are compared. Names, types and order may "
              "differ without a word."},
    .causes = {"The model is built from what the rank finds in its own data (classes, vocabulary, "
               "an optional head). Decide it once, on rank 0, and broadcast it.",
               "requires_grad differs: layers are frozen, or a checkpoint is loaded, on some ranks "
               "only.",
               "Ranks run other code or other arguments, or belong to two jobs that meet at one "
               "address."},
    .run = "names the parameters that some ranks lack, or have with another shape or type",
    .read = read_counts,
    .weigh = weigh_counts,
};

const KnownText kParameterShapes = {
    .id = "parameter-shapes",
    .severity = Severity::kError,
    .certainty = Certainty::kLikely,
    .depth = Depth::kCause,
    .rules = {"DDP306"},
    .phrases = {{"appears not to match sizes of the same param"},
                {"appears not to match strides of the same param"}},
    .versions = {{"replicas[0][", "about 1.10 and earlier"}, {"params[", "about 1.11 and later"}},
    .says = "A parameter of this rank has other sizes or strides than rank 0's.",
    .means = {"It is raised in the wrapper's constructor: nothing was trained yet. Ranks whose "
              "parameters fit report a lost connection instead.",
              "The index counts trainable parameters from 0, shared ones once: [n for n, p in "
              "model.named_parameters() if p.requires_grad][index]."},
    .causes = {"Sizes come from what the rank finds in its own data or configuration. Decide them "
               "once and broadcast them.",
               "Strides: .to(memory_format=...) on some ranks only.",
               "An exchange that failed looks like this too: if the log has a timeout as well, "
               "begin there."},
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
        {"It is raised in the wrapper's constructor. What needs no gradients needs no wrapper."},
    .causes = {"Everything is frozen on this rank: leave the module unwrapped.",
               "Layers are unfrozen, or adapters added, after wrapping. The wrapper would not know "
               "them (DDP106); do it before."},
    .run = "tells which parameters the optimizer updates and no wrapper covers",
};

}  // namespace

KnownTexts constructor_texts() {
  static constexpr std::array kTexts = {&kParameterCounts, &kParameterShapes, &kNothingToTrain};
  return kTexts;
}

}  // namespace ddp_doctor
