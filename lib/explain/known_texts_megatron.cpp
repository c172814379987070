// SPDX-License-Identifier: BSD-3-Clause
// Megatron-LM's errors: megatron/training/arguments.py, and under megatron/core parallel_state.py,
// num_microbatches_calculator.py, utils.py, rerun_state_machine.py,
// distributed/param_and_grad_buffer.py and dist_checkpointing/.
#include <array>

#include "lib/explain/known_texts.h"

namespace ddp_doctor {
namespace {

constexpr char kParallelSizes[] =
    "The world size is tensor * pipeline * context * data parallel size; with experts, also expert "
    "tensor * expert * pipeline * expert data parallel size.";

// parallel_state.py
const KnownText kMegatronGroups = {
    .id = "megatron-group-missing",
    .phrases = {{"parallel group is not initialized"},
                {"parallel combined is not initialized"},
                {"model parallel group-gloo is not initialized"},
                {"data parallel group-gloo is not initialized"},
                {"model parallel is not initialized"}},
    .says = "A process group of Megatron was used before it was made.",
    .causes =
        {"initialize_model_parallel() has not run in this process: code that uses Megatron's "
         "modules "
         "outside of its training script (conversion, inference, a notebook, a Ray worker).",
         "Two copies of megatron.core (an installed package and a checkout, or vLLM's "
         "parallel_state) "
         "are imported: the groups were made in the other.",
         "Another version of megatron.core than the framework expects (NeMo, Megatron-DeepSpeed): "
         "groups were renamed and added.",
         "The group belongs to a parallelism that is off (Gloo groups need "
         "--enable-gloo-process-groups)."},
};

const KnownText kMegatronWorldSize = {
    .id = "megatron-world-size",
    .phrases = {{"is not divisible by total_model_size"},
                {"is not divisible by tensor parallel size ("},
                {"is not divisible by tensor model parallel size"},
                {"is not divisible by expert_tensor_model_pipeline_parallel size"},
                {"is not divisible by `tensor_model_parallel_size`"}},
    .says = "The world size is not a multiple of the parallel sizes.",
    .means = {kParallelSizes},
    .causes = {"Fewer ranks were launched than the configuration is for: machines times "
               "--nproc_per_node.",
               "--tensor-model-parallel-size, --pipeline-model-parallel-size, "
               "--context-parallel-size or --expert-model-parallel-size does not divide it.",
               "The launcher started each process as a job of its own: the world size is 1."},
    .run = "launches the ranks: -n sets how many",
    .fields = {{"world size", ""}, {"model size", "total_model_size="}},
};

// num_microbatches_calculator.py
const KnownText kMegatronBatch = {
    .id = "megatron-batch-size",
    .phrases = {{"is not divisible by micro batch size ("}},
    .says =
        "The global batch size is not a multiple of the micro batch size times the data parallel "
        "size.",
    .means = {"Their quotient is the number of micro-batches of a step.", kParallelSizes},
    .causes =
        {"The number of ranks or a parallel size changed, and with it the data parallel size: "
         "choose another --global-batch-size, or another --micro-batch-size.",
         "--rampup-batch-size passes through sizes that do not divide "
         "(--decrease-batch-size-if-needed)."},
    .fields = {{"global batch size", ""},
               {"micro batch size", "micro batch size (", ")"},
               {"data parallel size", "times data parallel size (", ")"}},
};

// utils.py, ensure_divisibility
const KnownText kMegatronDivide = {
    .id = "megatron-not-divisible",
    .phrases = {{" is not divisible by ", Context::kMegatron},
                {"should be divisible by the pipeline-model-parallel size"},
                {"must be divisible pipeline model parallel size"},
                {"must be divisible number of layers per virtual pipeline stage"}},
    .part_of = {"megatron-world-size", "megatron-batch-size"},
    .says = "A size of the model cannot be divided among the ranks.",
    .means =
        {"The numbers tell which: attention heads, query groups, hidden or vocabulary size are "
         "divided by the tensor parallel size, layers by the pipeline parallel size, experts by "
         "the expert parallel size, the sequence by the context parallel size."},
    .causes =
        {"The number of heads or query groups is not a multiple of "
         "--tensor-model-parallel-size.",
         "The vocabulary is not padded: --make-vocab-size-divisible-by, times the tensor "
         "parallel size, is the padded vocabulary.",
         "The layers are not a multiple of the pipeline stages: "
         "--decoder-first-pipeline-num-layers, or a layout, allows for uneven stages.",
         "With context or sequence parallelism, the sequence length is not a multiple of twice "
         "the context parallel size, or of the tensor parallel size."},
    .fields = {{"number", ""}, {"divided by", "is not divisible by "}},
};

// rerun_state_machine.py, validate_result
const KnownText kMegatronNan = {
    .id = "megatron-nan",
    .rules = {&kNonfiniteGradient},
    .phrases = {{"found NaN in local grad norm"},
                {"found Inf in local grad norm"},
                {"found NaN in local forward loss calculation"},
                {"found Inf in local forward loss calculation"},
                {"found unexpected large grads in bucket"}},
    .says = "Megatron found NaN or Inf on this rank, before it was sent to the others.",
    .means = {"The check is made before the gradients are reduced: so the rank that reports it is "
              "where it arose, or one that got it from its pipeline neighbours.",
              "Later in the step every rank would have it, and nothing would tell where it began."},
    .causes =
        {"DDP402: the model or the data: a loss over no tokens (0/0), an overflow, a bad sample "
         "of this rank.",
         "Weights that an earlier step made NaN: then the loss of an earlier iteration shows it.",
         "A GPU that computes wrongly, if it is always the same machine: the rerun state machine "
         "tells (--rerun-mode validate_results)."},
    .run = "names the rank, the step and the parameter that was not finite first",
    .fields = {{"found", "found ", " in "}, {"bucket", "for bucket #"}},
};

// distributed/param_and_grad_buffer.py, finish_grad_sync
const KnownText kMegatronBucket = {
    .id = "megatron-bucket-incomplete",
    .rules = {&kUnusedParameters, &kRankDependentGraph},
    .phrases = {{"Communication call has not been issued for this bucket"}},
    .says =
        "Some parameters of a bucket got no gradient, so with --overlap-grad-reduce it was never "
        "reduced.",
    .means = {"It is what DistributedDataParallel reports as parameters that were not used in "
              "producing the loss."},
    .causes =
        {"DDP201: a layer is never called, or its result does not reach the loss: a frozen or "
         "unused head, a multimodal encoder without input.",
         "DDP202: a branch depends on the rank or its batch. Other ranks then wait.",
         "If all have a gradient (21/21): a parameter was used another number of times than in "
         "the first batch, for example in a warm-up step.",
         "Without --overlap-grad-reduce the error goes away, and the gradients of unused "
         "parameters are 0."},
    .run = "names the parameters and shows for each why it got no gradient, on which ranks",
    .fields = {{"parameters with a gradient", "for this bucket (", " params have"}},
};

// dist_checkpointing/strategies/torch.py and validation.py
const KnownText kMegatronShape = {
    .id = "megatron-checkpoint-shape",
    .phrases = {{"Global shape mismatch for loaded"}},
    .says = "A tensor of the checkpoint has another whole shape than the model's.",
    .causes = {"The vocabulary is padded to a multiple of --make-vocab-size-divisible-by times the "
               "tensor "
               "parallel size, and that size changed: keep the padded size by "
               "--make-vocab-size-divisible-by, if the key is an embedding or output_layer.",
               "The model has other sizes than the one that was saved (--use-checkpoint-args).",
               "A module that does not define sharded_state_dict was saved as one shard, as if it "
               "were the "
               "whole.",
               "The distributed optimizer was saved for another data parallel size: "
               "--dist-ckpt-optim-fully-reshardable, or --no-load-optim."},
    .fields = {{"saved", "for loaded (", ") and"},
               {"expected", "expected (", ") tensor"},
               {kParameterName, "tensor for key "}},
};

const KnownText kMegatronAccess = {
    .id = "megatron-checkpoint-access",
    .phrases = {{"Invalid access pattern"}},
    .says = "The shards that the ranks save or load do not add up to the whole tensor.",
    .means =
        {"The tensor in the message counts, for each place, how many ranks save it: 0 is a hole, "
         "2 is saved twice."},
    .causes =
        {"A parameter's sharded_state_dict does not know by which parallelism it is divided, or "
         "replica_id is wrong: a custom module under tensor, expert or context parallelism.",
         "A layer is on two pipeline stages, or on none: a custom pipeline layout."},
    .fields = {{kParameterName, "key='", "'"}},
};

const KnownText kMegatronKeys = {
    .id = "megatron-checkpoint-keys",
    .phrases =
        {{"Unexpected keys (not found in the checkpoint) encountered in the provided sharded"},
         {"Missing keys (for all ranks)"}},
    .says = "The model and the checkpoint have different keys.",
    .causes =
        {"The model has layers that the checkpoint lacks, or the reverse: another "
         "architecture, tied embeddings, _extra_state of another version of Transformer Engine "
         "(--dist-ckpt-strictness log_all).",
         "The checkpoint was converted for another version of Megatron."},
    .fields = {{"missing", "Missing keys (for all ranks): ", "."},
               {"unexpected", "Unexpected keys (for this rank): ", "."}},
};

// arguments.py of earlier versions
const KnownText kMaxConnections = {
    .id = "megatron-max-connections",
    .certainty = Certainty::kCertain,
    .phrases = {{"setting the environment variable CUDA_DEVICE_MAX_CONNECTIONS to 1"}},
    .says =
        "Overlapped communication of tensor or sequence parallelism needs "
        "CUDA_DEVICE_MAX_CONNECTIONS=1.",
    .causes =
        {"The variable is not set on this machine: export it before the launcher. Without it, "
         "kernels may run before the communication that they should overlap with."},
    .commands = {{"export CUDA_DEVICE_MAX_CONNECTIONS=1", "on every machine"}},
};

}  // namespace

KnownTexts megatron_texts() {
  static constexpr std::array kTexts = {
      &kMegatronGroups, &kMegatronWorldSize, &kMegatronBatch,  &kMegatronDivide, &kMegatronNan,
      &kMegatronBucket, &kMegatronShape,     &kMegatronAccess, &kMegatronKeys,   &kMaxConnections};
  return kTexts;
}

}  // namespace ddp_doctor
