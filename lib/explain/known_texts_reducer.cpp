// SPDX-License-Identifier: BSD-3-Clause
// The reducer's errors in a forward or a backward: torch/csrc/distributed/c10d/reducer.cpp.
#include <array>

#include "lib/explain/known_texts.h"
#include "lib/explain/wording/phrases.h"

namespace ddp_doctor {
namespace {

constexpr char kOneForwardLate[] =
    "The error is raised one forward late. The backward of the previous step caused it, and the "
    "optimizer has usually stepped since then, on each rank with its own gradients.";
constexpr char kNothingAveraged[] =
    "On these ranks that step averaged no gradient at all, not only those listed: buckets are "
    "reduced in order, and the averages are copied back after the last one. The replicas have "
    "differed since then; continue from an earlier checkpoint.";
constexpr char kHowToCount[] =
    "An index counts the trainable parameters of the module from 0 as they were when it was "
    "wrapped, with shared parameters counted once. The name is [n for n, p in "
    "model.named_parameters() if p.requires_grad][index].";
constexpr char kBeforeTheStep[] =
    "It is raised inside the backward pass, before optimizer.step: on this rank the weights are "
    "still those of the previous step.";
constexpr char kNamesParameters[] =
    "names the parameters and shows for each whether its module ran, why it got no gradient, on "
    "which ranks, and since which step";

const KnownText kUnfinishedReduction = {
    .id = "unfinished-reduction",
    .severity = Severity::kError,
    .certainty = Certainty::kLikely,
    .depth = Depth::kCause,
    .rules = {&kUnusedParameters, &kRankDependentGraph},
    .phrases = {{phrases::kUnfinishedReduction},
                {"your module has parameters that were not used in producing loss"},
                {phrases::kLightningUnused}},
    .not_before = phrases::kGraphChanged,
    .not_after = {"This assert indicates that "},  // ZeRO's
    .versions = {{"(1) passing the keyword argument", "1.2 to 1.8"},
                 {"If you already have done the above two steps", "1.2 to 1.8"},
                 {"and by making sure all `forward`", "1.9 and later"},
                 {"Since `find_unused_parameters=True` is enabled", "1.9 and later"},
                 {"did not receive grad for rank", "1.9 and later"}},
    .hints = {{"loss returned by training_step",
               "Lightning put its own words in the place of PyTorch's, and so removed the list of "
               "parameters. Its strategy=\"ddp_find_unused_parameters_true\" is "
               "find_unused_parameters=True."},
              {"Since `find_unused_parameters=True` is enabled",
               "find_unused_parameters=True is set, so parameters that do not affect the output "
               "are not the cause. Since torch 1.10, neither are outputs that the loss does not "
               "use, despite the message. Check for parameters changed after wrapping, for a "
               "backward that was interrupted, and for outputs inside objects that the wrapper "
               "does not search (it searches tensors, lists, tuples, dicts and dataclasses)."},
              {"(1) passing the keyword argument", "These versions do not name the parameters."}},
    .says =
        "In the previous backward pass some trainable parameters got no gradient, so its reduction "
        "never finished.",
    .means = {kOneForwardLate, kNothingAveraged,
              "A run that ends right after such a step shows no error.", kHowToCount},
    .causes =
        {"DDP201: a layer is never called, or its result does not reach the loss. All ranks list "
         "the same parameters, from the second forward on. Remove the layer or freeze it before "
         "wrapping; if it must stay, use static_graph=True or find_unused_parameters=True.",
         "DDP202: a branch depends on the rank or on its batch (no boxes, an empty mask, layers "
         "dropped at random). Ranks list different parameters, or some ranks hang instead.",
         "DDP203: a branch depends on the step. Training works for a while, or each run lists "
         "different parameters.",
         "DDP105: parameters were frozen, moved or replaced after wrapping. The list contains "
         "exactly these.",
         "A backward pass raised an error halfway, and the program caught it (out of memory, a bad "
         "batch). The list then starts at 0, because the first layers get their gradients last."},
    .run = kNamesParameters,
    .read = read_unused,
    .weigh = weigh_unused,
};

// The end of such an error, without its start.
const KnownText kUnusedList = {
    .id = "unused-list",
    .severity = Severity::kError,
    .certainty = Certainty::kLikely,
    .depth = Depth::kCause,
    .rules = {&kUnusedParameters, &kRankDependentGraph},
    .phrases = {{"which did not receive grad for rank"}},
    .part_of = {"unfinished-reduction", "static-graph-fewer"},
    .versions = {{"did not receive grad for rank", "1.9 and later"}},
    .says = "The listed parameters got no gradient in the previous backward pass.",
    .means = {kOneForwardLate, kNothingAveraged, kHowToCount},
    .causes =
        {"DDP201: a layer is never called, or its result does not reach the loss. All ranks list "
         "the same parameters.",
         "DDP202: a branch depends on the rank or its batch. Ranks list different parameters.",
         "DDP206: with static_graph=True, a parameter that was used in the first iteration was not "
         "used in this one. The message says so before the list."},
    .run = kNamesParameters,
    .read = read_unused,
    .weigh = weigh_unused,
};

const KnownText kUnusedNotes = {
    .id = "unused-notes",
    .severity = Severity::kAdvice,
    .certainty = Certainty::kLikely,
    .depth = Depth::kWarning,
    .rules = {&kUnusedParameters, &kStepDependentGraph},
    .phrases = {{"did not get gradient in backwards pass"}, {"is marked as unused."}},
    .part_of = {"unfinished-reduction", "static-graph-fewer", "unused-list"},
    .versions = {{"is marked as unused.", "1.9 and later"},
                 {"did not get gradient in backwards pass", "1.9 and later"}},
    .says = "TORCH_DISTRIBUTED_DEBUG names parameters that got no gradient in some iteration.",
    .means = {"With find_unused_parameters=True this is allowed and training is correct. Without "
              "it, the next forward raises an error.",
              kHowToCount},
    .causes = {"DDP201: the same parameters are unused in every iteration: remove or freeze them.",
               "DDP203: different parameters are unused in different iterations: a branch depends "
               "on the step."},
    .run = kNamesParameters,
    .read = read_marked_unused,
};

const KnownText kStaticGraphFewer = {
    .id = "static-graph-fewer",
    .severity = Severity::kError,
    .certainty = Certainty::kCertain,
    .depth = Depth::kCause,
    .rules = {&kStaticGraphViolated},
    .phrases = {{"This error indicates that your training graph has changed in this iteration"},
                {"one parameter is used in first iteration, but then got unused"}},
    .versions = {{"did not receive grad for rank", "about 1.12 and later"},
                 {"training graph has changed", "1.9 and later"}},
    .says =
        "With static_graph=True, a parameter that got a gradient in the first iteration got none "
        "in the previous backward pass.",
    .means = {kOneForwardLate, kNothingAveraged, kHowToCount},
    .causes =
        {"A branch was taken in the first iteration but not in this one (a curriculum, an empty "
         "batch, layers dropped at random). static_graph=True requires that this never happens; "
         "find_unused_parameters=True allows it.",
         "forward returns an output that the loss does not use. The graph never changes, but "
         "PyTorch treats such parameters as used in the first iteration only and raises at the "
         "third forward. Use the output in the loss, or do not return it.",
         "The branch depends on the rank or its batch: ranks list different parameters (DDP202).",
         "Parameters were frozen after the first iteration: the list contains exactly these "
         "(DDP105)."},
    .run = kNamesParameters,
    .read = read_unused,
    .weigh = weigh_unused,
};

const KnownText kStaticGraphMore = {
    .id = "static-graph-more",
    .severity = Severity::kError,
    .certainty = Certainty::kCertain,
    .depth = Depth::kCause,
    .rules = {&kStaticGraphViolated},
    .phrases = {{"Your training graph has changed in this iteration"},
                {"one parameter is unused in first iteration, but then got used"}},
    .versions = {{"training graph has changed", "1.9 and later"}},
    .says =
        "With static_graph=True, a gradient arrived in this backward pass that did not arrive in "
        "the first iteration.",
    .means = {kBeforeTheStep,
              "In the first backward the reducer counts how often the hook of each parameter "
              "fires, and relies on that count afterwards. This time one hook fired once more. The "
              "message does not say which."},
    .causes = {"A branch was not taken in the first iteration. find_unused_parameters=True allows "
               "it; or keep the graph the same in every step (a weight of 0 instead of a branch).",
               "Two forwards ran before the first backward: this fails on torch 1.13, where the "
               "counts of the first iteration stay empty.",
               "Gradient accumulation under no_sync: static_graph=True miscounts it in several "
               "versions of PyTorch."},
    .run = "names the parameters whose use changed, and the first step",
};

const KnownText kStaticGraphAssert = {
    .id = "static-graph-assert",
    .severity = Severity::kError,
    .certainty = Certainty::kLikely,
    .depth = Depth::kCause,
    .rules = {&kStaticGraphViolated},
    .phrases = {{phrases::kHooksNotExpected}},
    .says =
        "A backward pass finished a reduction that no forward had prepared: an internal check of "
        "PyTorch failed.",
    .means = {"PyTorch does not support this combination of features. The model is not damaged: "
              "the error is raised in the first iterations.",
              "Working around the check is not a fix: if the first iteration was miscounted, later "
              "gradients may stay unreduced without an error."},
    .causes = {"static_graph=True with gradient accumulation: the first backward ran under "
               "no_sync, where the wrapper's forward prepares nothing (pytorch#143580). Use only "
               "one of the two; find_unused_parameters=True works with no_sync."},
    .run = "shows whether the gradients agree across ranks at every optimizer step",
};

const KnownText kStaticGraphLate = {
    .id = "static-graph-late",
    .severity = Severity::kError,
    .certainty = Certainty::kLikely,
    .depth = Depth::kCause,
    .rules = {},
    .phrases = {{"set_static_graph() should be called before training loop starts"}},
    .says = "static_graph was enabled after the first backward pass.",
    .means = {"The weights are correct; the call came too late."},
    .causes = {"_set_static_graph() was called in or after the training loop. Pass "
               "static_graph=True to DistributedDataParallel instead (torch 1.11 and later), or "
               "call it right after construction."},
    .run = "shows whether the graph really is the same in every step",
};

const KnownText kReadyTwice = {
    .id = "ready-twice",
    .severity = Severity::kError,
    .certainty = Certainty::kCertain,
    .depth = Depth::kCause,
    .rules = {&kMarkedReadyTwice},
    .phrases = {{phrases::kMarkedTwice}, {"has been marked as ready twice"}},
    .versions = {{"DDP does not support such use cases yet", "1.3 to 1.8"},
                 {"caused by use of a module parameter outside", "1.1 and 1.2"},
                 {"_set_static_graph()", "1.9 and later"},
                 {"has been marked as ready twice", "1.9 and later"}},
    .hints = {{phrases::kCheckpointFile,
               "A traceback contains checkpoint.py: reentrant checkpoints are involved."},
              {"caused by use of a module parameter outside",
               "This version raises it only with find_unused_parameters=True."}},
    .says = "In one iteration the reducer marked the same parameter as ready twice.",
    .means = {kBeforeTheStep,
              "The message always lists the same reasons, whatever the cause. Ranks that do not "
              "raise wait in an all-reduce and later report a timeout or a lost connection.",
              kHowToCount},
    .causes =
        {"Reentrant checkpoints with find_unused_parameters=True: parameters inside a checkpoint "
         "look unused and are marked as ready, then the checkpoint's own backward marks them "
         "again. Remove find_unused_parameters=True, or use checkpoint(..., use_reentrant=False).",
         "Reentrant checkpoints that use a parameter more than once: a shared layer, two forwards "
         "per step, a penalty on weights that are also used inside. Set use_reentrant=False, or "
         "static_graph=True if the graph never changes.",
         "With find_unused_parameters=True, the loss uses a parameter outside the wrapper's "
         "forward (a head applied afterwards). Move that computation into forward.",
         "The model was wrapped twice, and the first wrapper still exists: both have hooks."},
    .run = "names the parameter and shows whether a backward ran inside a backward",
    .read = read_ready_twice,
};

const KnownText kChangedInPlace = {
    .id = "changed-in-place",
    .severity = Severity::kError,
    .certainty = Certainty::kLikely,
    .depth = Depth::kCause,
    .rules = {},
    .phrases = {{"needed for gradient computation has been modified by an inplace operation"}},
    .says =
        "A tensor that the backward pass needs was modified in place after the forward that used "
        "it.",
    .means = {"Autograd raises this error. The wrapper can cause it: by default each forward first "
              "overwrites this rank's buffers in place with rank 0's."},
    .causes =
        {"Two forwards of the wrapper ran before one backward, and the module has BatchNorm or "
         "another buffer. The named tensor has a buffer's shape, such as [channels], and the error "
         "disappears without the wrapper. Run both inputs through one forward, or wrap with "
         "broadcast_buffers=False; BatchNorm statistics then differ across ranks (DDP303).",
         "The program's own in-place operation (+=, an in-place activation, optimizer.step between "
         "forward and backward). The error then also occurs without the wrapper; "
         "torch.autograd.set_detect_anomaly(True) shows the forward's line."},
    .run = "shows the order of the wrapper's forwards and backwards in each step",
    .read = read_version,
};

const KnownText kUndefinedGradient = {
    .id = "undefined-gradient",
    .severity = Severity::kError,
    .certainty = Certainty::kLikely,
    .depth = Depth::kCause,
    .rules = {},
    .phrases = {{"Encountered gradient which is undefined, but still allreduced by DDP reducer"}},
    .says = "The reducer tried to copy back a gradient that does not exist.",
    .means = {"PyTorch reports this as an internal error. The gradients of this step are lost."},
    .causes = {"A hook, a custom function or another thread set a gradient to None, or replaced a "
               "parameter, during the backward pass."},
    .run = "names parameters that were replaced after wrapping",
};

}  // namespace

KnownTexts reducer_texts() {
  static constexpr std::array kTexts = {
      &kUnfinishedReduction, &kUnusedList,        &kUnusedNotes,     &kStaticGraphFewer,
      &kStaticGraphMore,     &kStaticGraphAssert, &kStaticGraphLate, &kReadyTwice,
      &kChangedInPlace,      &kUndefinedGradient,
  };
  return kTexts;
}

}  // namespace ddp_doctor
