// SPDX-License-Identifier: BSD-3-Clause
// Errors of FullyShardedDataParallel (FSDP1), under torch/distributed/fsdp: _flat_param.py
// (flat_param.py before 2.2), _init_utils.py, _runtime_utils.py, _common_utils.py,
// _exec_order_utils.py, _state_dict_utils.py and _optim_utils.py.
#include <array>

#include "lib/explain/known_texts.h"

namespace ddp_doctor {
namespace {

constexpr char kFlatParameter[] =
    "FSDP1 makes one FlatParameter of all parameters in a wrapped module that no inner wrapper "
    "has: "
    "these share one dtype, one device, and without use_orig_params=True one requires_grad.";

constexpr char kThroughTheRoot[] =
    "FSDP gathers a module's parameters in the forward of its wrapper, and frees them afterwards. "
    "Outside, a rank holds only its shard: one dimension, or no elements at all.";

constexpr char kSameOnAllRanks[] =
    "It is a matter of how the model is wrapped, and the same on every rank.";

// _flat_param.py, _validate_tensors_to_flatten
const KnownText kFsdpRequiresGrad = {
    .id = "fsdp-requires-grad",
    .certainty = Certainty::kCertain,
    .phrases = {{"Must flatten tensors with uniform `requires_grad`"},
                {"`FlatParameter` requires uniform `requires_grad`"}},
    .versions = {{"Must flatten tensors", "2.1 and later"},
                 {"`FlatParameter` requires uniform `requires_grad`", "2.0 and earlier"}},
    .says = "A module wrapped by FSDP has frozen and trainable parameters together.",
    .means = {kFlatParameter, kSameOnAllRanks},
    .causes =
        {"Part of the model is frozen (LoRA, adapters, a frozen encoder). Use use_orig_params=True "
         "(FSDP_USE_ORIG_PARAMS, fsdp_use_orig_params in accelerate), or wrap so that frozen and "
         "trainable modules have wrappers of their own (peft: "
         "fsdp_auto_wrap_policy(model)). fully_shard (FSDP2) has no such limit."},
};

const KnownText kFsdpDtype = {
    .id = "fsdp-dtype",
    .phrases = {{"Must flatten tensors with uniform dtype but got"},
                {"`FlatParameter` requires uniform dtype"},
                {"Cannot flatten integer dtype tensors"}},
    .versions = {{"Must flatten tensors", "2.1 and later"},
                 {"`FlatParameter` requires uniform dtype", "2.0 and earlier"}},
    .says = "A module wrapped by FSDP has parameters of different dtypes together.",
    .means = {kFlatParameter, kSameOnAllRanks},
    .causes =
        {"Some layers were loaded or left in float32 and the others in bfloat16: norms, adapters "
         "(LoRA) that were added later, a head with torch_dtype of its own. Cast the model to one "
         "dtype before wrapping, and leave precision to MixedPrecision.",
         "Quantized weights: QLoRA needs bnb_4bit_quant_storage equal to the dtype of the other "
         "parameters.",
         "Modules that must keep another dtype need a wrapper of their own."},
    .fields = {{"dtypes", "uniform dtype but got "}, {"and", " and "}},
};

const KnownText kFsdpDevices = {
    .id = "fsdp-devices",
    .phrases = {{"Must flatten tensors on the same device but got both"},
                {"FSDP only supports single device modules but got params on"},
                {"To support a module with both CPU and GPU params"},
                {"FSDP does not support modules with different device types"},
                {"Inconsistent compute device and `device_id` on rank"}},
    .says =
        "The module given to FSDP has parameters on several devices, or on another one than "
        "FSDP shall use.",
    .causes = {"device_map=\"auto\" spread the model over the GPUs: each rank must load it on one "
               "device, or on the CPU.",
               "Modules were added or replaced after model.to(device).",
               "torch.cuda.set_device(local_rank) and device_id differ."},
    .fields = {{"devices", "got both ", kEndOfLine}, {"devices", "got params on ", kEndOfLine}},
};

// _runtime_utils.py, _check_flat_params_on_expected_device
const KnownText kFsdpMoved = {
    .id = "fsdp-parameters-elsewhere",
    .phrases = {{"An FSDP-managed module unexpectedly has parameters on"},
                {"An FSDP-managed module with parameter CPU offloading enabled has parameters on"}},
    .says =
        "At the first forward, parameters of an FSDP module are not on the device that FSDP "
        "computes on.",
    .causes =
        {"The module was wrapped on the CPU without device_id: pass "
         "device_id=torch.cuda.current_device(), or move the module first.",
         "The model was moved after wrapping: .cpu() for a checkpoint or to save memory, and "
         "not moved back.",
         "With CPUOffload(offload_params=True): the model was moved to the GPU, and must stay "
         "on the CPU."},
    .fields = {{"parameters on", "has parameters on "}, {"expected", "to move the module to "}},
};

const KnownText kFsdpRoot = {
    .id = "fsdp-root",
    .phrases = {{"Non-root FSDP instance's `_is_root` should not have been set yet"},
                {"state has already been lazily initialized for"},
                {"Expects a root FSDP to have been set"}},
    .versions = {{"has already been lazily initialized", "about 2.4 and later"}},
    .says = "An inner FSDP module ran before the outermost one, and took itself for the root.",
    .means =
        {"FSDP prepares everything in the first forward, of the root for all modules inside it.",
         kThroughTheRoot},
    .causes =
        {"A part of the model was called by itself before the first forward of the whole: "
         "model.encoder(x), generate(), a warm-up, a summary, an evaluation of one part.",
         "The model was wrapped once more after it had been used.",
         "state_dict() or clip_grad_norm_() of an inner module came before the first forward."},
    .fields = {{"module", "lazily initialized for "}},
};

// _common_utils.py, _assert_in_training_states; _runtime_utils.py, _post_backward_hook
const KnownText kFsdpState = {
    .id = "fsdp-training-state",
    .phrases = {{"expected to be in states [<TrainingState"},
                {"expected to be in states [TrainingState"},
                {"but current state is TrainingState."},
                {"Expects `BACKWARD_PRE` or `BACKWARD_POST` state but got"},
                {"Expects to be in `BACKWARD_PRE` or `IDLE`"},
                {"Expects `_post_backward_called` to be set"}},
    .says =
        "A hook of FSDP ran at a time when FSDP did not expect it: a backward outside of the "
        "order forward, backward.",
    .means = {"FSDP1 follows the order of one forward and one backward through the root. FSDP2 has "
              "no such states."},
    .causes =
        {"Several forwards before one backward, or several backwards: a GAN, contrastive pairs, a "
         "second loss. Make one forward of both inputs, or one backward of the sum.",
         "An output of an inner module was used in the loss, and not what the root returned: its "
         "pre-backward hook never ran.",
         "Reentrant activation checkpointing: use use_reentrant=False, or apply it inside the "
         "wrapped modules.",
         "An earlier error in forward or backward (out of memory) was caught, and the training "
         "went "
         "on with FSDP in the middle of a step."},
    .run = "shows each forward and backward of the step before it",
    .fields = {{"state", "current state is "}, {"state", "state but got "}},
};

// _exec_order_utils.py; the check runs under TORCH_DISTRIBUTED_DEBUG=DETAIL.
const KnownText kFsdpOrder = {
    .id = "fsdp-order",
    .rules = {&kCollectiveMismatch, &kRankDependentGraph, &kRankLocalCollective},
    .phrases = {{"Forward order differs across ranks"}},
    .says =
        "The ranks ran the FSDP modules in different orders: they gathered different parameters "
        "at the same position.",
    .means = {"TORCH_DISTRIBUTED_DEBUG=DETAIL checked this before any data was sent. Without it "
              "this is a "
              "hang, or wrong parameters without an error."},
    .causes =
        {"DDP202: a branch depends on the rank or on its batch: a missing modality, an expert "
         "without tokens, layers dropped at random with another seed per rank. Every rank "
         "must call every wrapped module, in the same order.",
         "DDP505: one rank alone runs an evaluation, or generates text."},
    .run = "names the modules that ran on some ranks only, with the step",
    .fields = {{"a rank", "across ranks: ", " is all-gathering"},
               {"it gathers", "all-gathering parameters for ", " while rank"},
               {"it gathers", "all-gathering ", " parameters while rank"},
               {"another rank", " while ", " is all-gathering"}},
};

const KnownText kFsdpOrderChanged = {
    .id = "fsdp-order-changed",
    .severity = Severity::kWarning,
    .depth = Depth::kWarning,
    .rules = {&kStepDependentGraph, &kRankDependentGraph},
    .phrases = {{"Forward order differs from that of the first iteration"}},
    .says = "This rank ran the FSDP modules in another order than in the first iteration.",
    .means =
        {"It is harmless if all ranks change alike (an evaluation, generate()). If only some do, "
         "they hang or gather the wrong parameters.",
         "It is printed once per rank."},
    .causes = {"DDP203: the program runs other modules in this iteration, for example for "
               "validation or text generation.",
               "DDP202: a branch depends on the rank or on its batch."},
    .run = "shows which modules ran in each step, on which ranks",
    .fields = {{"on rank", "first iteration on rank "}},
};

// ATen/native/Resize.h: FSDP and ZeRO-3 free a parameter by resizing its storage to 0.
const KnownText kFreedStorage = {
    .id = "sharded-storage-freed",
    .phrases = {{"are out of bounds for storage of size 0", Context::kSharded}},
    .says =
        "A view was made of a parameter whose memory was freed: its module was not in its forward "
        "at that time.",
    .means = {kThroughTheRoot},
    .causes =
        {"The parameter is used outside the forward of the module that holds it: tied embeddings "
         "in "
         "a custom head or loss, model.lm_head.weight, a torch.compile graph that kept it.",
         "Tied parameters (embedding and output layer) are in two different wrappers. They must be "
         "in the same one.",
         "A fused weight is transposed or split and the view is kept from an earlier step.",
         "FSDP1 with a forward under no_grad or inference_mode before the training step."},
    .run = "shows the forwards that went around the wrapper",
    .fields = {{"sizes", "sizes ", ", strides"}},
};

const KnownText kShardedEmbedding = {
    .id = "sharded-weight-used",
    .phrases = {{"'weight' must be 2-D", Context::kSharded},
                {"weight should have at least three dimensions", Context::kSharded},
                {"The size of tensor a (0) must match the size of tensor b", Context::kSharded},
                {"The size of tensor b (0)", Context::kSharded},
                {"mat2 must be a matrix", Context::kSharded},
                {"shape in current model is torch.Size([0])", Context::kSharded},
                {"with shape torch.Size([0]) from checkpoint", Context::kSharded}},
    .says = "A rank used its shard of a parameter in the place of the whole parameter.",
    .means = {kThroughTheRoot,
              "ZeRO-3 does the same: a parameter that is not gathered has the shape [0]."},
    .causes =
        {"The forward does not go through the wrapper or the engine: model.module(...), "
         "model.generate() on an inner module, a method other than forward.",
         "A module inside was called by itself, or its weight was used directly (tied embeddings, "
         "a "
         "custom loss, load_state_dict, initialization): gather first, with "
         "FSDP.summon_full_params(model) or deepspeed.zero.GatheredParameters(params).",
         "The wrapping policy left this module to the root, which was not running: name the layer "
         "class in the auto-wrap policy (fsdp_transformer_layer_cls_to_wrap).",
         "The checkpoint was saved under ZeRO-3 or FSDP without gathering: its tensors are empty. "
         "Save a full state dict (stage3_gather_16bit_weights_on_model_save, FULL_STATE_DICT).",
         "Not about sharding: the program itself passes a weight of another shape."},
    .run = "shows the forwards that went around the wrapper",
    .fields = {{"sizes", "size of tensor ", " at non-singleton"}},
};

const KnownText kInferenceMode = {
    .id = "fsdp-inference-mode",
    .phrases = {{"Inplace update to inference tensor outside InferenceMode", Context::kSharded},
                {"Inference tensors cannot be saved for backward", Context::kSharded},
                {"Cannot set version_counter for inference tensor", Context::kSharded},
                {"The `grad_fn` is needed to access the `AccumulateGrad`"}},
    .says =
        "FSDP's buffers were made under inference_mode, and a later step needs gradients of them.",
    .means = {"FSDP keeps gathered parameters from one forward to the next. Tensors that were made "
              "under inference_mode stay without autograd for ever."},
    .causes = {"A validation or sanity check under torch.inference_mode() ran before the first "
               "training step. Use torch.no_grad() in its place (Lightning: inference_mode=False).",
               "A dataset or a cache keeps tensors that were made under inference_mode."},
    .run = "shows the forward before it",
};

const KnownText kFsdpWriteback = {
    .id = "fsdp-parameters-changed",
    .rules = {&kParametersReplaced},
    .phrases = {{"Cannot writeback when the parameter shape changes"},
                {"Cannot writeback when the gradient shape changes"},
                {"FSDP does not support changing the parameters between forward and backward"},
                {"Changing shared parameters is not supported yet"}},
    .says = "Parameters or gradients were replaced while FSDP held them in its flat parameter.",
    .means = {"With use_orig_params=True FSDP copies changed parameters back into its flat one, if "
              "their shapes are unchanged."},
    .causes = {"DDP105: a parameter was assigned, resized or moved after wrapping: "
               "load_state_dict(assign=True), resize_token_embeddings, weight sharing, pruning.",
               "p.grad was set by hand to the gradient of the full parameter: FSDP's gradients are "
               "shards.",
               "model.to(dtype) between forward and backward."},
    .run = "names the parameters that changed after wrapping",
    .fields = {{"expected", "Expects ", " but got"}, {"got", " but got ", kEndOfLine}},
};

// _unshard_param_utils.py
const KnownText kFsdpSummon = {
    .id = "fsdp-unshard-in-step",
    .phrases = {{"Cannot manually unshard parameters during forward/backward"},
                {"Cannot manually unshard parameters when already unsharding"},
                {"Expects the handle training to be IDLE but got"}},
    .says =
        "summon_full_params or state_dict() was called in the middle of a forward or a backward.",
    .causes =
        {"It is called in a hook, in a callback of a trainer, or inside forward: move it after "
         "the backward.",
         "Two contexts of summon_full_params are nested: one for the root is enough.",
         "An error in a step was caught, and a checkpoint is then saved on the way out: FSDP "
         "is still in the middle of that step."},
    .fields = {{"state", "to be IDLE but got "}},
};

// _flat_param.py, _check_unsharded and the others
const KnownText kFsdpNotGathered = {
    .id = "fsdp-not-gathered",
    .phrases = {{"Expects tensor to be unsharded with size"},
                {"Expects storage to be allocated"},
                {"Expects storage to be freed but got storage with size > 0"},
                {"Expects the unpadded parameter to be a view into the padded parameter"},
                {"Expects size torch.Size(["}},
    .says = "FSDP found a flat parameter gathered that should be sharded, or the reverse.",
    .causes =
        {"A backward without its forward through the root, or the second of two forwards: see "
         "the order of calls in the step.",
         "Parameters were moved, cast or replaced after wrapping.",
         "An earlier error in forward or backward was caught, and the training went on."},
    .run = "shows each forward and backward of the step before it",
};

// _state_dict_utils.py
const KnownText kFsdpStateDict = {
    .id = "fsdp-state-dict",
    .phrases = {{"FSDP assumes "},
                {"No `FlatParameter` in `state_dict` for this FSDP instance"},
                {"load_sharded_state_dict can only be called when parameters are flattened"},
                {"``sharded_state_dict`` can only be used when parameters are flatten"},
                {"load_local_state_dict assume one shard per ShardedTensor"}},
    .says = "A state dict does not fit the FSDP model into which it is loaded.",
    .causes =
        {"It was saved with another state_dict_type, or with other wrapping, than it is loaded "
         "with: FULL_STATE_DICT, SHARDED_STATE_DICT and LOCAL_STATE_DICT are different files.",
         "Names differ by a prefix (_fsdp_wrapped_module, _orig_mod of torch.compile, module).",
         "Only rank 0 has a full state dict (rank0_only=True): load it before wrapping, or with "
         "sync_module_states=True."},
    .fields = {{kParameterName, "FSDP assumes ", " is in the state_dict"}},
};

// _optim_utils.py
const KnownText kFsdpOptim = {
    .id = "fsdp-optimizer-state",
    .rules = {&kOptimizerStale},
    .phrases = {{"`optim_state_dict` must have the keys \"state\""},
                {"All unflattened parameters comprising a single flat parameter must have"},
                {"Differing optimizer state names for the unflattened parameters"},
                {"is not in the optimizer state. The FSDPParamInfo has the param keys"},
                {"is not in the output state. The FSDPParamInfo has the param keys"},
                {"Check the `param_key_to_param` construction"},
                {"The number of parameters from FlatParameter is not consistent to"}},
    .says = "The optimizer's state does not fit the FSDP model: it cannot be saved or loaded.",
    .causes =
        {"DDP307: the optimizer was made before the model was wrapped, and holds other "
         "parameters than FSDP's. Make it from model.parameters() after wrapping.",
         "Some parameters have no state yet, or were frozen after a part of the training: save "
         "after the first step, with the same parameters trainable.",
         "The state was saved with another use_orig_params or other wrapping. Use "
         "FSDP.optim_state_dict and optim_state_dict_to_load (full_optim_state_dict is for "
         "older versions), or get_optimizer_state_dict of "
         "torch.distributed.checkpoint.state_dict.",
         "Ranks hold different scalar states (step): a rank skipped a step."},
    .run = "shows whether the optimizer holds the parameters that the model trains",
};

const KnownText kFsdpNoAccelerator = {
    .id = "fsdp-no-accelerator",
    .phrases = {{"FSDP needs a non-CPU accelerator device"},
                {"FSDP does not support CPU only execution"}},
    .says = "FSDP1 found no GPU.",
    .causes =
        {"CUDA is unavailable on this machine (torch.cuda.is_available()): a CPU build of torch, "
         "a driver that is too old, an empty CUDA_VISIBLE_DEVICES.",
         "The run is meant for CPUs: use device_id=torch.device(\"cpu\"), or fully_shard with "
         "init_device_mesh(\"cpu\", ...) over Gloo."},
};

// _runtime_utils.py, _share_state_and_init_handle_attrs
const KnownText kFsdpMixedSettings = {
    .id = "fsdp-mixed-settings",
    .certainty = Certainty::kCertain,
    .phrases = {{"Expects one homogeneous value for"}},
    .says = "FSDP modules of one model were made with different settings.",
    .causes =
        {"An inner module was wrapped by hand with another value (use_orig_params, "
         "forward_prefetch, limit_all_gathers, process_group) than the root: they must agree."},
    .fields = {{"setting", "homogeneous value for "}, {"values", " but got ", kEndOfLine}},
};

}  // namespace

KnownTexts fsdp_texts() {
  static constexpr std::array kTexts = {
      &kFsdpRequiresGrad,  &kFsdpDtype,        &kFsdpDevices,   &kFsdpMoved,
      &kFsdpRoot,          &kFsdpState,        &kFsdpOrder,     &kFsdpOrderChanged,
      &kFreedStorage,      &kShardedEmbedding, &kInferenceMode, &kFsdpWriteback,
      &kFsdpSummon,        &kFsdpNotGathered,  &kFsdpStateDict, &kFsdpOptim,
      &kFsdpNoAccelerator, &kFsdpMixedSettings};
  return kTexts;
}

}  // namespace ddp_doctor
