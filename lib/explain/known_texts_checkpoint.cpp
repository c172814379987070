// SPDX-License-Identifier: BSD-3-Clause
// Errors of torch.distributed.checkpoint (DCP): api.py, default_planner.py, filesystem.py and
// state_dict.py.
#include <array>

#include "lib/explain/known_texts.h"

namespace ddp_doctor {
namespace {

// default_planner.py, create_default_local_load_plan
const KnownText kMissingKey = {
    .id = "dcp-missing-key",
    .phrases = {{"Missing key in checkpoint state_dict"}},
    .versions = {{"Missing key in checkpoint state_dict", "about 2.3 and later"}},
    .says = "The model asks for a key that the distributed checkpoint does not have.",
    .means = {"DCP loads into the state dict that it is given: each of its keys must be in the "
              "checkpoint. In older versions it is a KeyError."},
    .causes =
        {"Names differ by a prefix: model. or module., _orig_mod of torch.compile, "
         "_fsdp_wrapped_module. Save and load with get_model_state_dict and "
         "set_model_state_dict, which remove these.",
         "The model has parameters that the checkpoint lacks (a new head, adapters, tied weights): "
         "DefaultLoadPlanner(allow_partial_load=True).",
         "The state dict of the optimizer: it was saved before the first step, or with other "
         "trainable parameters.",
         "It is another checkpoint: of another part of the training, or another format."},
    .commands = {{"python -c \"import sys; from torch.distributed.checkpoint import "
                  "FileSystemReader as R; print(*R(sys.argv[1]).read_metadata()"
                  ".state_dict_metadata, sep='\\n')\" FOLDER",
                  "prints the keys that the checkpoint has"}},
    .fields = {{kParameterName, "Missing key in checkpoint state_dict: "}},
};

const KnownText kSavedSize = {
    .id = "dcp-size-mismatch",
    .phrases = {{"Size mismatch between saved"},
                {" mismatch sizes torch.Size("},
                {" mismatch sizes, torch.Size("}},
    .says =
        "A tensor in the distributed checkpoint has another size than the one it is loaded into.",
    .means = {"DCP re-shards for another number of ranks by itself. Sizes are those of the whole "
              "tensor, so a difference is not about the ranks alone."},
    .causes =
        {"The model is built with another configuration: vocabulary, hidden size, number of "
         "experts "
         "or layers.",
         "The vocabulary was padded to a multiple of the tensor-parallel size, and that size has "
         "changed.",
         "One of the two is a shard that was saved or passed as a plain tensor (to_local(), ZeRO, "
         "FSDP with LOCAL_STATE_DICT), so its size depends on the number of ranks.",
         "FSDP1 with use_orig_params=False: flat parameters are padded to the number of ranks."},
    .fields = {{"saved", "between saved ", " and current"},
               {"current", "and current: ", " for "},
               {kParameterName, "]) for "},
               {"sizes", " mismatch sizes ", kEndOfLine}},
};

// torch/nn/modules/module.py, load_state_dict
const KnownText kShardedSize = {
    .id = "sharded-size-mismatch",
    .phrases = {{"copying a param with shape", Context::kSharded},
                {"the shape in current model is", Context::kMegatron}},
    .part_of = {"sharded-weight-used"},
    .says = "A parameter of the checkpoint has another shape than the model's.",
    .causes =
        {"One of the two is a shard, or an empty tensor of ZeRO-3: save a full state dict, or load "
         "with the same parallel sizes.",
         "The vocabulary was padded to a multiple of the tensor parallel size, or of another "
         "number, "
         "on one side only (Megatron: --make-vocab-size-divisible-by), if it is an embedding or an "
         "output layer.",
         "Not about sharding: the model has another configuration."},
    .fields = {{"saved", "copying a param with shape ", " from"},
               {"expected", "shape in current model is ", "."}},
};

// api.py
const KnownText kCheckpointFailed = {
    .id = "dcp-failed",
    .phrases = {{"CheckpointException ranks:"}},
    .part_of = {"dcp-missing-key", "dcp-size-mismatch", "dcp-no-metadata"},
    .says = "Saving or loading a distributed checkpoint failed on the ranks that are listed.",
    .means = {"Every rank raises this, for the error of each: read the tracebacks that follow, by "
              "rank."},
    .causes = {"The error in the traceback that follows.",
               "Ranks see different folders: the path must be on storage that all machines share.",
               "The disk is full, or the folder is not writable on some machine."},
    .fields = {{"ranks that failed", "ranks:dict_keys([", "]"}},
};

// filesystem.py, read_metadata
const KnownText kNoMetadata = {
    .id = "dcp-no-metadata",
    .phrases = {{"/.metadata'"}},
    .says = "The folder has no .metadata file: it is not a finished distributed checkpoint.",
    .means = {"The coordinator writes .metadata last, after every rank has written its part."},
    .causes = {"The save was interrupted: take the checkpoint before it.",
               "An asynchronous save (async_save) was not waited for before the program ended.",
               "The path is wrong by one folder, or on a disk that this machine does not share.",
               "The checkpoint has another format: torch.save, safetensors, DeepSpeed."},
    .fields = {{"path", "directory: '"}},
};

// default_planner.py, DefaultSavePlanner
const KnownText kSavePlan = {
    .id = "dcp-save-plan",
    .phrases = {{"Failed to validate global plan"}},
    .says = "What the ranks want to save does not add up to whole tensors.",
    .causes =
        {"A sharded tensor is saved by some of its ranks only, or shards overlap: pass the "
         "state dict on every rank, from get_model_state_dict.",
         "Ranks have different keys or shapes for the same name: a pipeline that does not name "
         "its layers globally."},
};

// state_dict.py
const KnownText kStateDictOptions = {
    .id = "dcp-state-dict",
    .phrases = {{"full_state_dict must be True when broadcast_from_rank0 is True"},
                {"model state_dict is required to save or load, but model state_dict is empty"},
                {"is required to save, or load but optim state_dict is empty"},
                {"This can happen if the model is not the root module"},
                {"has no saved optimizer state"}},
    .says =
        "The state dict that get_state_dict or set_state_dict handles does not fit the model, the "
        "optimizer or the options.",
    .causes =
        {"The optimizer has no state before its first step, or holds other parameters than the "
         "model (it was made before sharding, DDP307).",
         "A part of the model was passed and not the root that was sharded.",
         "StateDictOptions: broadcast_from_rank0=True needs full_state_dict=True.",
         "Parameters are trainable now that were frozen when the checkpoint was saved: "
         "StateDictOptions(strict=False) leaves their state out."},
    .run = "shows whether the optimizer holds the parameters that the model trains",
    .fields = {{kParameterName, "optimizer state for parameter '", "'"}},
};

}  // namespace

KnownTexts checkpoint_texts() {
  static constexpr std::array kTexts = {&kMissingKey,       &kSavedSize,  &kShardedSize,
                                        &kCheckpointFailed, &kNoMetadata, &kSavePlan,
                                        &kStateDictOptions};
  return kTexts;
}

}  // namespace ddp_doctor
