// SPDX-License-Identifier: BSD-3-Clause
// What the reducer says of a forward and a backward: torch/csrc/distributed/c10d/reducer.cpp.
#include <array>

#include "lib/explain/known_texts.h"

namespace ddp_doctor {
namespace {

constexpr char kOneForwardLate[] =
    "The error comes one forward late. The backward at fault is that of the step before, and as a "
    "rule the optimizer has stepped since then, each rank on its own gradients.";
constexpr char kNothingAveraged[] =
    "That step averaged no gradient at all on the ranks concerned, not only none of those listed: "
    "buckets are reduced in order, and the averages are copied back after the last one. The "
    "replicas differ since then; go on from an earlier checkpoint.";
constexpr char kHowToCount[] =
    "An index counts the trainable parameters of the wrapped module from 0, shared ones once, as "
    "they were when it was wrapped: [n for n, p in model.named_parameters() if "
    "p.requires_grad][index] is the name.";
constexpr char kBeforeTheStep[] =
    "It is raised inside the backward pass, before optimizer.step: on this rank the weights are "
    "still those of the step before.";
constexpr char kNamesParameters[] =
    "names the parameters, tells for each whether its module ran and why it got no gradient, on "
    "which rank, and since which step";

const KnownText kUnfinishedReduction = {
    .id = "unfinished-reduction",
    .severity = Severity::kError,
    .certainty = Certainty::kLikely,
    .depth = Depth::kCause,
    .rules = {"DDP201", "DDP202"},
    .phrases = {{"Expected to have finished reduction in the prior iteration"},
                {"your module has parameters that were not used in producing loss"}},
    .not_before = "training graph has changed",
    .versions = {{"(1) passing the keyword argument", "1.2 to 1.8"},
                 {"If you already have done the above two steps", "1.2 to 1.8"},
                 {"and by making sure all `forward`", "1.9 and later"},
                 {"Since `find_unused_parameters=True` is enabled", "1.9 and later"},
                 {"did not receive grad for rank", "1.9 and later"}},
    .clues = {{"Since `find_unused_parameters=True` is enabled",
               "find_unused_parameters=True was set, so that parameters which the output does not "
               "depend on were no problem. Since torch 1.10 outputs left out of the loss are none "
               "either, whatever the message says. Look at parameters that were changed after "
               "wrapping, at a backward that was cut short, and at outputs inside objects that the "
               "wrapper does not search (it knows tensors, lists, tuples, dicts and dataclasses)."},
              {"(1) passing the keyword argument",
               "These versions do not tell which parameters they mean."}},
    .says =
        "In the backward pass before this forward some trainable parameters got no gradient, "
        "so that its reduction was never finished.",
    .means = {kOneForwardLate, kNothingAveraged,
              "A run that ends right after such a step ends without an error.", kHowToCount},
    .causes =
        {"DDP201: a layer is never called, or what it computes does not reach the loss. All ranks "
         "list the same parameters, from the second forward on. Remove it or freeze it before "
         "wrapping; if it must stay, static_graph=True or find_unused_parameters=True.",
         "DDP202: a branch depends on the rank or on what is in its batch (no boxes, an empty "
         "mask, layers dropped at random). Ranks list different parameters, or some of them hang "
         "instead.",
         "DDP203: a branch depends on the step. It went well for a while, or each run lists "
         "others.",
         "DDP105: parameters were frozen, moved or replaced after wrapping. The list is exactly "
         "theirs.",
         "A backward pass that raised halfway and whose error was caught (out of memory, a bad "
         "batch). The list then begins at 0, since gradients come from the loss backwards."},
    .run = kNamesParameters,
    .read = read_unused,
    .weigh = weigh_unused,
};

// The end of such an error, without its beginning.
const KnownText kUnusedList = {
    .id = "unused-list",
    .severity = Severity::kError,
    .certainty = Certainty::kLikely,
    .depth = Depth::kCause,
    .rules = {"DDP201", "DDP202"},
    .phrases = {{"which did not receive grad for rank"}},
    .part_of = {"unfinished-reduction", "static-graph-fewer"},
    .versions = {{"did not receive grad for rank", "1.9 and later"}},
    .says = "The parameters listed got no gradient in the backward pass before this forward.",
    .means = {kOneForwardLate, kNothingAveraged, kHowToCount},
    .causes = {"DDP201: a layer is never called, or what it computes does not reach the loss. All "
               "ranks list the same parameters.",
               "DDP202: a branch depends on the rank or its batch. Ranks list different ones.",
               "DDP206: with static_graph=True, a parameter that was used in the first iteration "
               "was not used in this one. The part of the message before the list says so."},
    .run = kNamesParameters,
    .read = read_unused,
    .weigh = weigh_unused,
};

const KnownText kUnusedNotes = {
    .id = "unused-notes",
    .severity = Severity::kAdvice,
    .certainty = Certainty::kLikely,
    .depth = Depth::kWarning,
    .rules = {"DDP201", "DDP203"},
    .phrases = {{"did not get gradient in backwards pass"}, {"is marked as unused."}},
    .part_of = {"unfinished-reduction", "static-graph-fewer", "unused-list"},
    .versions = {{"is marked as unused.", "1.9 and later"},
                 {"did not get gradient in backwards pass", "1.9 and later"}},
    .says = "TORCH_DISTRIBUTED_DEBUG names parameters that got no gradient in some iteration.",
    .means = {"With find_unused_parameters=True this is allowed and training is right. Without it "
              "an error follows at the next forward.",
              kHowToCount},
    .causes = {"DDP201: the same parameters in every iteration: remove or freeze them.",
               "DDP203: other parameters in other iterations: a branch that depends on the step."},
    .run = kNamesParameters,
    .read = read_marked_unused,
};

const KnownText kStaticGraphFewer = {
    .id = "static-graph-fewer",
    .severity = Severity::kError,
    .certainty = Certainty::kCertain,
    .depth = Depth::kCause,
    .rules = {"DDP206"},
    .phrases = {{"This error indicates that your training graph has changed in this iteration"},
                {"one parameter is used in first iteration, but then got unused"}},
    .versions = {{"did not receive grad for rank", "about 1.12 and later"},
                 {"training graph has changed", "1.9 and later"}},
    .says =
        "With static_graph=True, a parameter that got a gradient in the first iteration got "
        "none in the backward pass before this forward.",
    .means = {kOneForwardLate, kNothingAveraged, kHowToCount},
    .causes =
        {"A branch was taken in the first iteration and not in this one (a curriculum, an empty "
         "batch, layers dropped at random). static_graph=True promises that this never happens; "
         "find_unused_parameters=True allows it.",
         "forward returns something that the loss leaves out. The graph never changes, but "
         "PyTorch takes such parameters for used in the first iteration only and raises at the "
         "third forward. Put it into the loss, or do not return it.",
         "The branch depends on the rank or its batch: ranks list different parameters (DDP202).",
         "Parameters were frozen after the first iteration: the list is exactly theirs (DDP105)."},
    .run = kNamesParameters,
    .read = read_unused,
    .weigh = weigh_unused,
};

const KnownText kStaticGraphMore = {
    .id = "static-graph-more",
    .severity = Severity::kError,
    .certainty = Certainty::kCertain,
    .depth = Depth::kCause,
    .rules = {"DDP206"},
    .phrases = {{"Your training graph has changed in this iteration"},
                {"one parameter is unused in first iteration, but then got used"}},
    .versions = {{"training graph has changed", "1.9 and later"}},
    .says =
        "With static_graph=True, a gradient arrived in this backward pass that did not arrive "
        "in the first iteration's.",
    .means = {kBeforeTheStep,
              "The reducer notes in the first backward how often the hook of each parameter fires "
              "and relies on it afterwards; this time one fired once more. It does not say which."},
    .causes = {"A branch that the first iteration did not take. find_unused_parameters=True allows "
               "it; or keep the graph alike in every step (a weight of 0 instead of a branch).",
               "Two forwards before the first backward: seen to fail on torch 1.13, where the note "
               "of the first iteration stays empty.",
               "Gradient accumulation under no_sync, which static_graph=True miscounts in several "
               "versions of PyTorch."},
    .run = "names the parameters whose use changed, and the first step",
};

const KnownText kStaticGraphAssert = {
    .id = "static-graph-assert",
    .severity = Severity::kError,
    .certainty = Certainty::kLikely,
    .depth = Depth::kCause,
    .rules = {"DDP206"},
    .phrases = {{"expect_autograd_hooks_ INTERNAL ASSERT"}},
    .says =
        "A backward pass came to the end of a reduction that no forward had prepared: a check "
        "of PyTorch's own failed.",
    .means = {"A combination that PyTorch does not support, not damage to the model. It is raised "
              "in the first iterations.",
              "To get past the check is no cure: where the first iteration was miscounted, later "
              "gradients may stay unreduced without an error."},
    .causes = {"static_graph=True with gradient accumulation: the first backward ran under "
               "no_sync, where the wrapper's forward prepares nothing (pytorch#143580). Leave one "
               "of the two; find_unused_parameters=True goes with no_sync."},
    .run = "shows whether the gradients agree across ranks at every optimizer step",
};

const KnownText kStaticGraphLate = {
    .id = "static-graph-late",
    .severity = Severity::kError,
    .certainty = Certainty::kLikely,
    .depth = Depth::kCause,
    .rules = {},
    .phrases = {{"set_static_graph() should be called before training loop starts"}},
    .says = "static_graph was switched on after the first backward pass.",
    .means = {"Nothing is wrong with the weights; the call came too late."},
    .causes = {"_set_static_graph() in or after the training loop. Pass static_graph=True to "
               "DistributedDataParallel instead (torch 1.11 and later), or call it right after."},
    .run = "tells whether the graph really is the same in every step",
};

const KnownText kReadyTwice = {
    .id = "ready-twice",
    .severity = Severity::kError,
    .certainty = Certainty::kCertain,
    .depth = Depth::kCause,
    .rules = {"DDP205"},
    .phrases = {{"Expected to mark a variable ready only once"},
                {"has been marked as ready twice"}},
    .versions = {{"DDP does not support such use cases yet", "1.3 to 1.8"},
                 {"caused by use of a module parameter outside", "1.1 and 1.2"},
                 {"_set_static_graph()", "1.9 and later"},
                 {"has been marked as ready twice", "1.9 and later"}},
    .clues = {{"checkpoint.py",
               "A traceback goes through checkpoint.py: reentrant checkpoints are part of it."},
              {"caused by use of a module parameter outside",
               "This version raises it only with find_unused_parameters=True."}},
    .says =
        "In one iteration the reducer was told twice that the gradient of the same parameter "
        "is ready.",
    .means = {kBeforeTheStep,
              "The reasons in the message are always the same ones, whatever happened. Ranks that "
              "do not raise wait in an all-reduce and report a timeout or a lost connection later.",
              kHowToCount},
    .causes =
        {"Reentrant checkpoints with find_unused_parameters=True: what is inside a checkpoint "
         "looks unused and is marked ready, then the checkpoint's own backward reports it. Drop "
         "find_unused_parameters=True, or use checkpoint(..., use_reentrant=False).",
         "Reentrant checkpoints that reach a parameter more than once: a shared layer, two "
         "forwards per step, a penalty on weights that are used inside as well. "
         "use_reentrant=False, or static_graph=True if the graph never changes.",
         "With find_unused_parameters=True, a parameter that the loss uses outside the wrapper's "
         "forward (a head applied afterwards). Move that into forward.",
         "The model was wrapped twice, and the first wrapper is still alive: both have hooks."},
    .run = "names the parameter and tells whether a backward ran inside a backward",
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
        "A tensor that the backward pass needs was changed in place after the forward that "
        "used it.",
    .means = {"The message is autograd's. But the wrapper makes such a change itself: by default "
              "each of its forwards first copies rank 0's buffers over this rank's, in place."},
    .causes =
        {"Two forwards of the wrapper before one backward, and BatchNorm or another buffer in the "
         "module. The tensor named has a buffer's shape, such as [channels], and the error goes "
         "away without the wrapper. Put both inputs through one forward, or wrap with "
         "broadcast_buffers=False; BatchNorm statistics then drift apart (DDP303).",
         "The program's own in-place operation (+=, an in-place activation, optimizer.step between "
         "forward and backward). The error then comes without the wrapper as well; "
         "torch.autograd.set_detect_anomaly(True) shows the forward's line."},
    .run = "shows where the wrapper's forwards and backwards stand in each step",
    .read = read_version,
};

const KnownText kUndefinedGradient = {
    .id = "undefined-gradient",
    .severity = Severity::kError,
    .certainty = Certainty::kLikely,
    .depth = Depth::kCause,
    .rules = {},
    .phrases = {{"Encountered gradient which is undefined, but still allreduced by DDP reducer"}},
    .says = "The reducer was to copy back a gradient that does not exist.",
    .means = {"PyTorch takes it for a defect of its own. The gradients of this step are lost."},
    .causes = {"A gradient set to None, or a parameter replaced, while the backward pass was "
               "running: by a hook, a custom function, another thread."},
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
