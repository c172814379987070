// SPDX-License-Identifier: BSD-3-Clause
// DeepSpeed's errors, under deepspeed/runtime: engine.py, config.py, fp16/loss_scaler.py,
// zero/stage_1_and_2.py, zero/stage3.py, zero/partition_parameters.py and
// zero/partitioned_param_coordinator.py.
#include <array>

#include "lib/explain/known_texts.h"

namespace ddp_doctor {
namespace {

constexpr char kZero3Gathers[] =
    "ZeRO-3 gathers the parameters of a module in hooks before its forward and backward, and frees "
    "them after. It records the order of modules in the first step, and prefetches by it.";

// partitioned_param_coordinator.py, fetch_sub_module; ds_summary() is the dictionary.
const KnownText kZero3Status = {
    .id = "zero3-parameter-status",
    .rules = {&kStepDependentGraph, &kRankDependentGraph},
    .phrases = {{"'status': 'INFLIGHT'"},
                {"'status': 'NOT_AVAILABLE'"},
                {"still have inflight params"},
                {"Cannot partition a param in flight"}},
    .part_of = {"zero3-trace"},
    .says =
        "ZeRO-3 met a parameter in a state that it did not expect: not gathered, or still being "
        "gathered.",
    .means = {kZero3Gathers},
    .causes =
        {"The modules that run change from step to step, or differ across ranks: an evaluation or "
         "generate() between training steps, a branch (mixture of experts, a missing modality). "
         "For "
         "experts: deepspeed.utils.set_z3_leaf_modules(model, [MoEBlock]). Setting "
         "stage3_prefetch_bucket_size to 0 turns prefetching off.",
         "A module was called around the engine (engine.module.generate, a forward of an inner "
         "module), or two engines share parameters.",
         "An earlier error in forward or backward was caught, and the training went on.",
         "Parameters with no elements, or a module that returns its parameter: a bug of some "
         "versions of DeepSpeed (DeepSpeed#3068, #5381, #5648)."},
    .run = "shows which modules ran in each step, on which ranks",
    .fields = {{"parameter id", "'id': "},
               {"status", "'status': '", "'"},
               {"shape", "'ds_shape': ", ", 'requires_grad'"}},
};

const KnownText kZero3Trace = {
    .id = "zero3-trace",
    .rules = {&kStepDependentGraph, &kRankDependentGraph},
    .phrases = {{"tracing error at step"}, {"attempted to record trace when status"}},
    .says = "ZeRO-3 recorded another order of modules than the one that now runs.",
    .means = {kZero3Gathers},
    .causes = {"DDP203: modules run in another order or number than in the first step.",
               "DDP202: a branch depends on the rank or its batch. The ranks then also gather "
               "different parameters, and hang.",
               "A forward under no_grad, or of the model without loss, between training steps."},
    .run = "shows which modules ran in each step, on which ranks",
    .fields = {{"step", "tracing error at step "}, {"module id", "module id: "}},
};

const KnownText kZero3TraceCache = {
    .id = "zero3-trace-invalidated",
    .severity = Severity::kAdvice,
    .depth = Depth::kWarning,
    .rules = {&kStepDependentGraph},
    .phrases = {{"Invalidate trace cache @ step"}},
    .part_of = {"zero3-trace"},
    .says =
        "The modules that ran differ from those that ZeRO-3 recorded, so it stops prefetching "
        "until it has recorded them again.",
    .means =
        {"Harmless if all ranks do alike, and slower. If only some ranks print it, they run other "
         "modules than the rest, and can hang."},
    .causes = {"An evaluation or generate() between training steps.",
               "DDP203: a branch depends on the step.",
               "DDP202: a branch depends on the rank or its batch."},
    .run = "shows which modules ran in each step, on which ranks",
    .fields = {{"step", "trace cache @ step "}},
};

// stage_1_and_2.py, reduce_independent_p_g_buckets_and_remove_grads
const KnownText kZeroTwice = {
    .id = "zero-reduced-twice",
    .phrases = {{"has already been reduced. Gradient computed twice"},
                {"Multiple gradient reduction is currently not supported"},
                {"Multiple gradient reductions are currently not supported"}},
    .says =
        "ZeRO got a second gradient for a parameter in one backward, after it had reduced the "
        "first.",
    .means = {"It is what DistributedDataParallel calls \"marked ready twice\" (DDP205)."},
    .causes =
        {"Reentrant activation checkpointing of a layer that is used twice: "
         "gradient_checkpointing_kwargs={\"use_reentrant\": False}.",
         "Two forwards before one backward (contrastive pairs, DPO, ORPO) with ZeRO-1 or 2 and "
         "checkpointing: concatenate the inputs into one forward, or use ZeRO-3.",
         "backward was called twice without a step of the engine between: add the losses.",
         "A parameter that is shared by two modules and checkpointed in both."},
    .run = "on the program without DeepSpeed names the parameter whose hook fires twice",
    .fields = {{"parameter number", ""}},
};

const KnownText kZeroAttribute = {
    .id = "zero3-not-partitioned",
    .phrases = {{"object has no attribute 'ds_id'"},
                {"object has no attribute 'ds_numel'"},
                {"object has no attribute 'ds_tensor'"},
                {"object has no attribute 'ds_status'"},
                {"object has no attribute 'ds_shape'"},
                {"object has no attribute 'ds_persist'"},
                {"object has no attribute 'ds_summary'"}},
    .says = "ZeRO-3 met a parameter that it has not partitioned.",
    .causes = {"The parameter was created or replaced after deepspeed.initialize: an adapter, "
               "resize_token_embeddings, a new head, weight tying. Do it before, or under "
               "deepspeed.zero.Init().",
               "The optimizer that was passed in holds parameters that are not in the model.",
               "torch.compile or a quantized layer made new parameters in the place of the old."},
    .run =
        "on the program without DeepSpeed names parameters of the optimizer that are not the "
        "model's",
};

// loss_scaler.py, DynamicLossScaler.update_scale
const KnownText kLossScaleMinimum = {
    .id = "loss-scale-minimum",
    .rules = {&kNonfiniteGradient},
    .phrases = {{"Current loss scale already at minimum"}},
    .says = "Every step overflowed in fp16 until the loss scale reached its minimum.",
    .means =
        {"The gradients are not finite in every step, whatever the scale: the scale is not the "
         "cause. The weights have not been updated since the overflows began."},
    .causes =
        {"DDP402: NaN or Inf comes from the model or the data: see which rank and parameter has "
         "it first.",
         "A model that was trained in bfloat16 overflows in fp16: use bf16.",
         "A learning rate or an initialization that diverges; a loss that is a sum over a "
         "large batch."},
    .run = "names the rank, the step and the parameter whose gradient was not finite first",
};

// torch/amp/grad_scaler.py, _unscale_grads_
const KnownText kUnscaleFp16 = {
    .id = "unscale-fp16",
    .certainty = Certainty::kCertain,
    .phrases = {{"Attempting to unscale FP16 gradients", Context::kDistributed}},
    .says = "A GradScaler was asked to unscale fp16 gradients: the weights themselves are fp16.",
    .means = {"It is not about the ranks: one process has it, too."},
    .causes =
        {"The model was loaded or cast in fp16 (torch_dtype=torch.float16, .half()) and is "
         "trained with fp16 autocast. Trainable weights must be float32 under a scaler; or use "
         "bf16 without a scaler; with FSDP, float32 weights with "
         "MixedPrecision(param_dtype=torch.float16) and ShardedGradScaler."},
};

// config.py, _batch_assertion
const KnownText kDeepSpeedBatch = {
    .id = "deepspeed-batch-size",
    .phrases = {{"Check batch related parameters. train_batch_size is not equal"}},
    .says = "DeepSpeed's three batch sizes and the world size contradict each other.",
    .means =
        {"train_batch_size must be train_micro_batch_size_per_gpu * gradient_accumulation_steps "
         "* world_size. Here world_size counts the data-parallel ranks."},
    .causes =
        {"The configuration is for another number of GPUs. Give two of the three, and leave the "
         "third to DeepSpeed (\"auto\" in transformers).",
         "The launcher started each process as a job of its own: the world size is 1."},
    .fields = {{"sizes", "gradient_acc_step * world_size ", kEndOfLine}},
};

// stage_1_and_2.py, complete_grad_norm_calculation_for_cpu_offload
const KnownText kZeroUnused = {
    .id = "zero-unused-parameters",
    .rules = {&kUnusedParameters, &kRankDependentGraph},
    .phrases = {{"This assert indicates that your module has parameters that were not used"}},
    .says = "With ZeRO's CPU offload, some trainable parameters got no gradient.",
    .means = {"With \"ignore_unused_parameters\": true, the default, ZeRO goes on without them."},
    .causes = {"DDP201: a layer is never called, or its result does not reach the loss.",
               "DDP202: a branch depends on the rank or its batch."},
    .run = "names the parameters and shows for each why it got no gradient, on which ranks",
};

// engine.py, load_checkpoint
const KnownText kZeroCheckpoint = {
    .id = "zero-checkpoint-world-size",
    .certainty = Certainty::kCertain,
    .phrases = {{"The checkpoint being loaded used a DP world size of"}},
    .says = "The ZeRO checkpoint was saved by another number of data-parallel ranks.",
    .causes =
        {"ZeRO's optimizer state is divided among the ranks and is not divided anew. Start with "
         "as many ranks; convert it with ds_to_universal.py and load it as universal; or load "
         "the weights alone (load_optimizer_states=False)."},
    .fields = {{"saved by", "used a DP world size of ", " but"},
               {"now", "the current world size is "}},
};

// engine.py, no_sync
const KnownText kZeroNoSync = {
    .id = "zero-no-sync",
    .phrases = {{"no_sync context manager is incompatible with gradient partitioning"}},
    .says = "no_sync was used with ZeRO-2 or 3, which reduce gradients in every backward.",
    .means =
        {"DeepSpeed raises it since 0.16. Before, its engine had no no_sync, and frameworks did "
         "without it."},
    .causes =
        {"A framework accumulates gradients by no_sync: a version of accelerate or transformers "
         "from before DeepSpeed 0.16 (transformers#35157 fixes it), or "
         "accelerator.accumulate().",
         "The program calls no_sync itself: leave accumulation to DeepSpeed "
         "(gradient_accumulation_steps), or use ZeRO-1."},
    .fields = {{"ZeRO stage", "ZeRO stage "}},
};

// engine.py
const KnownText kZeroPlainBackward = {
    .id = "deepspeed-plain-backward",
    .certainty = Certainty::kCertain,
    .phrases = {{"Loss scaling is required for this configuration, but backward() was called"}},
    .says = "loss.backward() was called on an engine that scales the loss.",
    .causes = {"Use engine.backward(loss), or engine.scale(loss).backward()."},
};

// partition_parameters.py, GatheredParameters
const KnownText kZeroStillActive = {
    .id = "zero3-still-active",
    .phrases = {{"Cannot free a ZeRO-3 parameter while it is still active in submodules"},
                {"Nested GatheredParameters contexts cannot overlap parameters"}},
    .says = "A ZeRO-3 parameter was to be freed while something still uses it.",
    .causes = {"GatheredParameters is used inside a forward, or nested over the same parameters: "
               "gather once, outside of the forward.",
               "A hook or a checkpoint runs in the middle of a step."},
};

}  // namespace

KnownTexts deepspeed_texts() {
  static constexpr std::array kTexts = {
      &kZero3Status,      &kZero3Trace,  &kZero3TraceCache,  &kZeroTwice,  &kZeroAttribute,
      &kLossScaleMinimum, &kUnscaleFp16, &kDeepSpeedBatch,   &kZeroUnused, &kZeroCheckpoint,
      &kZeroStillActive,  &kZeroNoSync,  &kZeroPlainBackward};
  return kTexts;
}

}  // namespace ddp_doctor
