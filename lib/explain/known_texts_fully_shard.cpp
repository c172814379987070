// SPDX-License-Identifier: BSD-3-Clause
// Errors of fully_shard (FSDP2): torch/distributed/fsdp/_fully_shard, and
// torch/distributed/_composable/fsdp before 2.6.
#include <array>

#include "lib/explain/known_texts.h"

namespace ddp_doctor {
namespace {

// _init_utils.py, _verify_managed_params; _fsdp_init.py, _verify_managed_param
const KnownText kFsdpScalar = {
    .id = "fsdp-scalar-parameter",
    .certainty = Certainty::kCertain,
    .phrases = {{"fully_shard doesn't support scalar parameters"},
                {"fully_shard does not support scalar parameters"},
                {"FSDP doesn't support scalar parameters"}},
    .says = "A parameter has no dimension (a scalar), and so cannot be sharded.",
    .causes =
        {"A learnable temperature, scale or gate made by nn.Parameter(torch.tensor(1.0)): make "
         "it of shape [1], or leave it out with ignored_states (ignored_params of "
         "fully_shard). Ignored parameters are not reduced: average their gradients by hand."},
    .fields = {{kParameterName, "scalar parameters. Change ", " to a 1D"}},
};

// _fsdp_param_group.py
const KnownText kFsdp2Dtype = {
    .id = "fsdp2-dtype",
    .phrases = {{"FSDP expects uniform original parameter dtype but got"},
                {"FSDP expects uniform reduce dtype but got"}},
    .says = "One fully_shard group has trainable parameters of different dtypes.",
    .means = {"Parameters of one fully_shard call are gathered and reduced together."},
    .causes = {"Norms, adapters or a head stay in float32 and the rest is bfloat16. Keep all in "
               "float32 and use MixedPrecisionPolicy(param_dtype=torch.bfloat16).",
               "Modules that must keep another dtype: call fully_shard on them by themselves."},
    .fields = {{"dtypes", "dtype but got ", kEndOfLine}},
};

const KnownText kFsdp2Meta = {
    .id = "fsdp2-meta-device",
    .certainty = Certainty::kCertain,
    .phrases = {{"FSDP parameters should be materialized from meta device before training"}},
    .says = "Parameters are still on the meta device, without values, at the first forward.",
    .causes =
        {"After fully_shard: model.to_empty(device=\"cuda\"), then initialize (reset_parameters "
         "of each module) or load a checkpoint. load_state_dict needs assign=True, or "
         "set_model_state_dict. Buffers need values too. The parameters that are listed were "
         "missed: often a module without reset_parameters, or keys that the checkpoint lacks."},
    .fields = {{"on meta", "still on meta device: ", " For example"}},
};

const KnownText kFsdp2Offload = {
    .id = "fsdp2-cpu-offload",
    .certainty = Certainty::kCertain,
    .phrases = {{"FSDP parameters should be materialized on CPU when enabling CPU offloading"}},
    .says = "fully_shard with CPUOffloadPolicy found parameters on the GPU.",
    .causes = {"The model was moved or loaded to the GPU after fully_shard. Keep it on the CPU: "
               "to_empty(device=\"cpu\"), a CPU state dict, and no model.to(\"cuda\")."},
    .fields = {{"elsewhere", "on non-CPU device: ", kEndOfLine}},
};

const KnownText kFsdp2Uneven = {
    .id = "fsdp2-uneven-shard",
    .certainty = Certainty::kCertain,
    .phrases = {{"FSDP does not support uneven sharding on dim"}},
    .says =
        "A parameter is sharded on another dimension than 0, whose size the ranks do not divide.",
    .causes =
        {"shard_placement_fn returns Shard(1) or more for it: only dimension 0 may be uneven. "
         "Return Shard(0), or pad the dimension."},
    .fields = {{"dimension", "sharding on dim "},
               {"sizes", ": ", " (world size"},
               {"world size", "(world size: "}},
};

const KnownText kFsdp2SharedAcross = {
    .id = "fsdp2-shared-parameter",
    .certainty = Certainty::kCertain,
    .phrases = {{"is shared with a parameter already managed by another FSDP group"}},
    .says = "A tied parameter is in two fully_shard groups.",
    .causes = {"Tied embedding and output layer: fully_shard([embedding, head]) puts them in one "
               "group. Tie weights before fully_shard."},
    .fields = {{kParameterName, ""}},
};

// _fsdp_param.py and _fsdp_init.py
const KnownText kFsdp2Mesh = {
    .id = "fsdp2-mesh",
    .phrases = {{"FSDP requires the DP and"},
                {"fully_shard expects a 1D or 2D DeviceMesh but got"},
                {"Please init the 2D mesh for HSDP with mesh_dim_names"},
                {"FSDP only supports 1D TP"}},
    .says = "fully_shard cannot use its mesh together with that of the parameters.",
    .means = {"Parameters that are DTensors already (tensor or expert parallelism) and fully_shard "
              "need slices of one mesh."},
    .causes = {"The meshes were made by separate calls of init_device_mesh: make one with all "
               "dimensions, and slice it (mesh[\"dp\"], mesh[\"tp\"]).",
               "The whole mesh was passed, and not the dimensions of data parallelism.",
               "HSDP needs a mesh of two dimensions with names: (replicate, shard)."},
};

}  // namespace

KnownTexts fully_shard_texts() {
  static constexpr std::array kTexts = {&kFsdpScalar,   &kFsdp2Dtype,  &kFsdp2Meta,
                                        &kFsdp2Offload, &kFsdp2Uneven, &kFsdp2SharedAcross,
                                        &kFsdp2Mesh};
  return kTexts;
}

}  // namespace ddp_doctor
