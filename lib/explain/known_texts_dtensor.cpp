// SPDX-License-Identifier: BSD-3-Clause
// Errors of DTensor, DeviceMesh and tensor parallelism: torch/distributed/tensor (_tensor before
// 2.5) and torch/distributed/device_mesh.py.
#include <array>

#include "lib/explain/known_texts.h"

namespace ddp_doctor {
namespace {

constexpr char kWhyMixed[] =
    "An operator takes DTensors alone or tensors alone, except for scalars: DTensor cannot know "
    "whether a plain tensor is the whole, a shard or a partial sum.";

// _dispatch.py, _try_replicate_spec_for_scalar_tensor
const KnownText kMixedTensors = {
    .id = "dtensor-mixed",
    .phrases = {{"got mixed torch.Tensor and DTensor"}},
    .says = "An operator got DTensors and plain tensors together.",
    .means = {kWhyMixed,
              "The operator tells where: aten._foreach_* is an optimizer or the clipping "
              "of gradients; aten.mm, addmm or embedding is a layer that was left out."},
    .causes =
        {"A layer's parameters are DTensors and its input is not, or the reverse: a module that "
         "the "
         "parallelize plan or fully_shard left out, or one that is called around the wrapper.",
         "clip_grad_norm_ or a fused optimizer over parameters of which some are not DTensors: "
         "modules without fully_shard, ignored parameters. Clip them as two sets, or shard all.",
         "A weight is used by itself in a loss or a tied head (model.lm_head.weight): call the "
         "module, or use weight.full_tensor() or DTensor.from_local.",
         "A buffer or a constant (masks, rotary frequencies, position embeddings): make it with "
         "distribute_tensor(..., [Replicate()]), or use to_local() on the others.",
         "With tensor parallelism: use_local_output=False of one module passes DTensors on to a "
         "module that does not expect them."},
    .run = "names the parameters that are sharded, and those that are not",
    .fields = {{"operator", ""}},
};

// _sharding_prop.py
const KnownText kNoStrategy = {
    .id = "dtensor-no-strategy",
    .phrases = {{"does not have a sharding strategy registered"}},
    .versions = {{"does not have a sharding strategy registered", "2.0 and later"}},
    .says = "DTensor does not know how to run this operator on shards.",
    .causes =
        {"A newer torch may have it: each version adds operators.",
         "A custom or fused operator (flash-attn, Triton, a quantized linear): register it with "
         "torch.distributed.tensor.experimental.register_sharding, or run it on local tensors with "
         "to_local() and DTensor.from_local, or local_map.",
         "Under torch.inference_mode() composite operators (aten.matmul, aten.linear) reach "
         "DTensor "
         "undecomposed: use torch.no_grad().",
         "The tensor should not be a DTensor here: redistribute to Replicate and use to_local()."},
    .fields = {{"operator", ""}},
};

const KnownText kPropagation = {
    .id = "dtensor-sharding-propagation",
    .phrases = {{"Sharding propagation failed"}},
    .part_of = {"dtensor-cross-mesh", "dtensor-uneven-view", "dtensor-mixed", "dtensor-partial",
                "dtensor-no-strategy"},
    .says = "DTensor could not find placements for the result of an operator.",
    .means =
        {"The reason is in the line before it, or in the exception above. The operator's schema "
         "in the message lists each input: placements, and shape on the mesh."},
    .causes = {"Shapes of the inputs do not fit each other: an error of the program that a single "
               "process has as well.",
               "The operator's rule does not support these placements: redistribute the inputs "
               "(usually to Replicate) before the call."},
    .fields = {{"operator", "Sharding propagation failed for ", "("},
               {"operator", "Sharding propagation failed on op ", "("},
               {"operator", "Sharding propagation failed for Op(op=", ","},
               {"operator", "Sharding propagation failed on op Op(op=", ","}},
};

// _op_schema.py, get_mesh_from_args; _ops/_tensor_ops.py; _redistribute.py; _api.py
const KnownText kCrossMesh = {
    .id = "dtensor-cross-mesh",
    .phrases = {{"DTensor does not support cross-mesh operation on"},
                {"on inputs with different meshes: got"},
                {"must have the same mesh, but got"},
                {"Cross device mesh comm not supported yet"},
                {"Cannot distribute a DTensor with device mesh"}},
    .says = "An operator got DTensors that live on different device meshes.",
    .means =
        {"Two meshes over the same ranks are different, too, if their dimensions or their names "
         "differ."},
    .causes =
        {"clip_grad_norm_ over parameters on several meshes (experts on another mesh than the "
         "rest, "
         "tensor-parallel modules beside others): take the norm of each mesh, as a plain number, "
         "and "
         "combine these.",
         "A mesh was made twice with init_device_mesh: make one, and slice it (mesh[\"tp\"]).",
         "Data is sharded on the mesh of data parallelism, and a weight on that of tensor "
         "parallelism alone: shard both on slices of one mesh, or use to_local() between them.",
         "A parameter was created outside of the parallelized modules."},
    .fields = {{"operator", "cross-mesh operation on ", "!"},
               {"meshes", "Got meshes: ", ". Please"},
               {"meshes", "different meshes: got ", kEndOfLine},
               {"operator", ""},
               {"meshes", "must have the same mesh, but got ", kEndOfLine}},
};

// device_mesh.py
const KnownText kMeshTooBig = {
    .id = "mesh-too-big",
    .phrases = {{"Mesh should not be bigger than default world size"}},
    .says = "The device mesh has more ranks than the job.",
    .causes = {"The product of the parallel sizes is larger than the world size: fewer ranks were "
               "launched than the configuration is for (tensor, pipeline, data, context parallel).",
               "The launcher started each process as a job of its own: the world size is 1."},
    .run = "launches the ranks: -n sets how many",
    .fields = {{"world size", "default world size "},
               {"ranks in the mesh", "but found ", " ranks"}},
};

const KnownText kMeshNames = {
    .id = "mesh-dimension-names",
    .phrases = {{"Invalid mesh_dim_names"},
                {"Invalid mesh_dim_name "},
                {"Cannot slice a DeviceMesh without mesh_dim_names"},
                {"Found repeated mesh_dim_name in mesh_dim_names"},
                {"already exists for submesh of the"},
                {"not found in mesh.mesh_dim_names"}},
    .says = "A slice of a device mesh names a dimension that the mesh does not have.",
    .causes = {"The mesh was made without that dimension, often because its size is 1 and the "
               "configuration omits it: give it a size of 1.",
               "Names are sliced in another order than they were given in, or a submesh is sliced: "
               "slice the root mesh.",
               "The mesh was made without mesh_dim_names."},
    .fields = {{"asked for", "Invalid mesh_dim_names ", " specified"},
               {"valid", "Valid mesh_dim_names are ", "."}},
};

const KnownText kMeshHardware = {
    .id = "mesh-hardware",
    .certainty = Certainty::kCertain,
    .phrases = {{"DeviceMesh only support homogeneous hardware"}},
    .says = "The machines have different numbers of GPUs, or not all of them are used.",
    .causes = {"The world size is not a multiple of the GPUs that a machine shows: start as many "
               "ranks on each machine, or set CUDA_VISIBLE_DEVICES alike on all."},
    .fields = {{"ranks", "but found ", " ranks"}, {"devices", " ranks and ", " devices"}},
};

// _ops/_view_ops.py
const KnownText kUnevenView = {
    .id = "dtensor-uneven-view",
    .phrases = {{"Cannot flatten unevenly sharded tensor"},
                {"Cannot unflatten unevenly sharded tensor"},
                {"Cannot shard unevenly distributed tensor"},
                {"Attempted to flatten sharded dimension"},
                {"Attempted to flatten multiple dimensions, with dimension"},
                {"Attempted to split the sharded dimension"}},
    .versions = {{"Attempted to flatten sharded dimension", "before about 2.9"}},
    .says =
        "A view or reshape would flatten or split a sharded dimension that the ranks do not "
        "divide, or that is not the leftmost one.",
    .causes =
        {"The number of heads, the hidden size or the sequence length is not a multiple of the "
         "mesh's size.",
         "view(-1, ...) merges the batch with a sequence that is sharded (SequenceParallel): "
         "redistribute to Replicate, or use to_local(), before the view.",
         "The last batch is smaller, so its sharded dimension no longer divides: "
         "drop_last=True."},
    .fields = {{"dimension", "sharded tensor: ", " is not evenly"},
               {"dimension", "distributed tensor: ", " is not evenly"},
               {"mesh dimension", "divisible by mesh dimension ", "."}},
};

// _api.py and _redistribute.py
const KnownText kPartialPlacement = {
    .id = "dtensor-partial",
    .phrases = {{"only Shard to Partial(sum) redistribution is supported"},
                {"Any checkpointing related operations are not supported for DTensor with partial"},
                {"Redistribution from one partial type"},
                {"Mixed Partial reduce types are not supported"},
                {"Replicate to Partial("},
                {"Can not redistribute from "},
                {"Can not redistribute to Partial"}},
    .says =
        "A DTensor that holds partial sums was used where only whole values will do, or the "
        "reverse.",
    .means = {"Partial means that the value is the sum over ranks of what each holds. Healthy "
              "gradients can be Partial at optimizer.step; weights cannot."},
    .causes =
        {"A state dict, or full_tensor(), of a tensor that was never reduced: redistribute it "
         "to Replicate or Shard first.",
         "A parallelize plan asks for a layout that does not exist (output_layouts=Partial()).",
         "max and sum reductions are combined on one tensor."},
};

const KnownText kPlacementCount = {
    .id = "dtensor-placements",
    .certainty = Certainty::kCertain,
    .phrases = {{"`placements` must have the same length as `device_mesh.ndim`"}},
    .says = "A DTensor was given another number of placements than its mesh has dimensions.",
    .causes = {"One placement for each mesh dimension, in order: [Replicate(), Shard(0)] on a "
               "two-dimensional mesh, or a slice of it (mesh[\"tp\"]) with one."},
    .fields = {{"placements", "Found placements length: "}, {"mesh", "device_mesh.ndim: "}},
};

// parallel/style.py
const KnownText kPlanModule = {
    .id = "tp-unsupported-module",
    .phrases = {{"currently only support nn.Linear and nn.Embedding"}},
    .says =
        "A parallelize plan applies ColwiseParallel or RowwiseParallel to a module that is "
        "neither a Linear nor an Embedding.",
    .causes =
        {"The name in the plan matches a container, a norm (use SequenceParallel) or a custom "
         "layer (quantized linear, LoRA): name the Linear inside it."},
    .fields = {{"style", ""}},
};

// ATen: the local tensor of one rank has fewer heads or features than the code expects.
const KnownText kLocalView = {
    .id = "tp-local-view",
    .phrases = {{"is invalid for input of size", Context::kTensorParallel}},
    .says =
        "A view does not fit the size of a tensor; with tensor parallelism, usually because a rank "
        "holds only its part of the heads or features.",
    .causes =
        {"After a ColwiseParallel projection with use_local_output=True (the default) the output "
         "is "
         "a plain tensor with 1/size of the features: view it with n_heads / tp_size heads, or "
         "with "
         "-1 in the place of the number of heads.",
         "The number of key-value heads is smaller than the size of tensor parallelism, or not a "
         "multiple of it.",
         "A sequence that is not a multiple of the mesh's size, with SequenceParallel: ranks hold "
         "uneven parts.",
         "An error of the program that a single process has as well: run it with a tensor-parallel "
         "size of 1."},
    .fields = {{"size", "is invalid for input of size "}},
};

}  // namespace

KnownTexts dtensor_texts() {
  static constexpr std::array kTexts = {&kMixedTensors,   &kNoStrategy, &kPropagation,
                                        &kCrossMesh,      &kMeshTooBig, &kMeshNames,
                                        &kMeshHardware,   &kUnevenView, &kPartialPlacement,
                                        &kPlacementCount, &kPlanModule, &kLocalView};
  return kTexts;
}

}  // namespace ddp_doctor
