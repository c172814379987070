// SPDX-License-Identifier: BSD-3-Clause
// PyTorch's words by which an error is recognised, in a run as in a pasted log.
#pragma once

namespace ddp_doctor::phrases {

// torch/csrc/distributed/c10d/reducer.cpp
inline constexpr char kUnfinishedReduction[] =
    "Expected to have finished reduction in the prior iteration";
inline constexpr char kGraphChanged[] = "training graph has changed";
// A no_sync backward meets static_graph's delayed all-reduce.
inline constexpr char kHooksNotExpected[] = "expect_autograd_hooks_ INTERNAL ASSERT";
inline constexpr char kMarkedTwice[] = "Expected to mark a variable ready only once";
inline constexpr char kWithoutGradient[] = " which did not receive grad for rank ";
inline constexpr char kParameterAtIndex[] = "Parameter at index ";
// Lightning puts these words in the place of PyTorch's.
inline constexpr char kLightningUnused[] =
    "not used in producing the loss returned by training_step";
// A line of a traceback: torch/utils/checkpoint.py. The messages themselves mention "`checkpoint`
// functions" in every case.
inline constexpr char kCheckpointFile[] = "checkpoint.py";
// The checks of Gloo and of TORCH_DISTRIBUTED_DEBUG=DETAIL.
inline constexpr char kGlooSizes[] = "op.preamble.length <= op.nbytes";
inline constexpr char kMismatchedCalls[] = "Detected mismatch between collectives";

}  // namespace ddp_doctor::phrases
