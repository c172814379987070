// SPDX-License-Identifier: BSD-3-Clause
// Errors of torch.distributed.pipelining: _utils.py, stage.py and schedules.py.
#include <array>

#include "lib/explain/known_texts.h"

namespace ddp_doctor {
namespace {

// _utils.py, validate_tensor_metadata; PipeliningMetadataError in newer versions.
const KnownText kStageShape = {
    .id = "pipeline-shape",
    .rules = {&kCollectiveMismatch},
    .phrases = {{"PipeliningShapeError"},
                {"PipeliningMetadataError"},
                {"has a shape mismatch: expected"},
                {"has a dtype mismatch: expected"}},
    .versions = {{"PipeliningShapeError", "2.4 and later"}},
    .says = "A pipeline stage got or made a tensor of another shape or dtype than it announced.",
    .means = {"Stages allocate their receive buffers once, from the first micro-batch. Without the "
              "check, sends and receives of different sizes hang or corrupt data."},
    .causes = {"Micro-batches differ in size: the last batch, or sequences that are not padded to "
               "one length. Use drop_last=True, and pad.",
               "Evaluation or another phase uses another shape than training.",
               "Autocast or a cast changes the dtype between the stages.",
               "input_args or output_args of PipelineStage were made with other shapes than the "
               "data."},
    .run = "shows which rank stopped first",
    .fields = {{"tensor", "PipeliningShapeError: ", " has a"},
               {"difference", "PipeliningMetadataError: ", kEndOfLine},
               {"expected", " mismatch: expected ", " actual"},
               {"actual", " actual ", kEndOfLine}},
};

// schedules.py
const KnownText kMicrobatches = {
    .id = "pipeline-microbatches",
    .phrases = {{" arg_mbs but got "},
                {" kwarg_mbs but got "},
                {" target_mbs but got "},
                {"or equal to the number of stages ("},
                {"Loss for microbatch "},
                {" losses but got "}},
    .says = "The batch does not give the number of micro-batches that the schedule was made for.",
    .causes = {"The batch is smaller than n_microbatches: the last batch of an epoch. Use "
               "drop_last=True.",
               "Interleaved schedules need at least as many micro-batches as stages, and 1F1B as "
               "many as ranks.",
               "A rank without the last stage has no losses: read them there only."},
    .run = "shows the number of batches per rank",
    .fields = {{"expected", ""},
               {"micro-batches", "Number of microbatches (", ")"},
               {"stages", "number of stages (", ")"},
               {"got", " but got "}},
};

// stage.py and schedules.py
const KnownText kPipelineGradients = {
    .id = "pipeline-gradients",
    .phrases = {{"step() requires gradients to be enabled for backward computation"},
                {"can't get bwd output if this stage is first"}},
    .says = "A pipeline schedule was asked for a backward that it cannot run.",
    .causes = {"schedule.step() was called under torch.no_grad(): use schedule.eval()."},
};

}  // namespace

KnownTexts pipelining_texts() {
  static constexpr std::array kTexts = {&kStageShape, &kMicrobatches, &kPipelineGradients};
  return kTexts;
}

}  // namespace ddp_doctor
