// What the launcher and the rank worker for TorchScript programs agree on.
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

// Begins the message for the user on stderr, after whatever libraries wrote there.
inline constexpr std::string_view kErrorMark = "ddp-doctor: error: ";

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
};

}  // namespace ddp_doctor
