// SPDX-License-Identifier: BSD-3-Clause
// What the launcher agrees on with the programs that it starts: the rank worker for TorchScript
// programs, C++ programs that examine themselves.
#pragma once

#include <string_view>

namespace ddp_doctor {

// Exit codes of the rank worker.
namespace worker_exit {
inline constexpr int kFinished = 0;
inline constexpr int kRaised = 1;  // raised in training: the error is in the record
inline constexpr int kCouldNotRun =
    2;  // usage, environment, record: what follows kErrorMark says why
inline constexpr int kRefusedProgram = 3;  // the program's own first pass failed: likewise
}  // namespace worker_exit

// `script-probe --prepared FD ROOM`: a worker that forks ranks when asked to through that socket.
// Their command lines are to be seen where ROOM, any text, was.
inline constexpr char kPreparedOption[] = "--prepared";

// Begins the message for the user on stderr, after whatever libraries wrote there.
inline constexpr std::string_view kErrorMark = "ddp-doctor: error: ";

// Stands in every executable that has a ddp_doctor::Examination, which is therefore started once
// for each rank.
inline constexpr char kExaminedProgramMark[] = "ddp-doctor: this program examines itself (1)";

// Strategies for TorchScript programs, in the order in which users see them.
inline constexpr std::string_view kScriptStrategies[] = {
    "ddp", "ddp-find-unused", "ddp-static-graph", "bypass", "allreduce-each", "allreduce-flat",
};

// An unmodified program in Python, or a command: as its author wrote it,
inline constexpr char kAsIs[] = "as-is";
// or with one of these, or several joined by "+", applied to it by the probe.
inline constexpr std::string_view kProgramStrategies[] = {
    "ddp",
    "ddp-find-unused",
    "ddp-static-graph",
    "allreduce-each",
    "allreduce-flat",
    "broadcast-init",
    "broadcast-buffers",
    "rebuild-optimizer",
};
// Of compare only: the ranks as they are, and one process on the same samples.
inline constexpr char kOneProcess[] = "one-process";
// Of run --fix only, with the name of a dimension of the mesh: what is reduced over it, a finding
// says (its evidence "reduction").
inline constexpr std::string_view kAllReduceDimension = "allreduce-dimension:";

}  // namespace ddp_doctor
