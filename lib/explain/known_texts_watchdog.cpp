// SPDX-License-Identifier: BSD-3-Clause
// What PyTorch's NCCL process group says when communicators are not made, time out, or hang:
// ProcessGroupNCCL.cpp and NCCLUtils.cpp under torch/csrc/distributed/c10d.
#include <array>

#include "lib/explain/known_texts.h"

namespace ddp_doctor {
namespace {

const KnownText kInitTimeout = {
    .id = "nccl-init-timeout",
    .depth = Depth::kCollective,
    .rules = {&kStalledRank, &kRankCrashed},
    .phrases = {{"NCCL timeout in communicator initialization"},
                {"NCCL timeout when waiting for nonblocking call"}},
    .versions = {{"NCCL timeout in communicator initialization", "about 2.1 and later"}},
    .says = "A communicator was not ready in time: some ranks did not come, or cannot be reached.",
    .causes = {"DDP504: a rank ended before its first collective; its own output shows why.",
               "DDP501: a rank is still loading data or weights, and calls its first collective "
               "later than the timeout.",
               "The store (MASTER_ADDR) is reachable and the network that NCCL chose is not: set "
               "NCCL_SOCKET_IFNAME."},
    .commands = {{"NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET",
                  "run again with this setting: NCCL then prints which network it uses, and what "
                  "it waits for"}},
    .run = "shows which rank is missing",
};

// ProcessGroupNCCL.cpp, broadcastUniqueNCCLID; "retreiving" until 2.1.
const KnownText kUniqueId = {
    .id = "nccl-unique-id",
    .depth = Depth::kCollective,
    .rules = {&kRankCrashed, &kStalledRank},
    .phrases = {{"is setting up NCCL communicator"}},
    .versions = {{"is setting up NCCL communicator", "1.11 and later"}},
    .says = "This rank reached the first collective of a process group, and its rank 0 did not.",
    .means = {"NCCL makes the communicator at the first collective: rank 0 of the group puts an id "
              "into the store, and the others wait for it there."},
    .causes =
        {"DDP504: rank 0 of the group failed or ended before that collective; its own output "
         "shows why.",
         "DDP501: rank 0 is busy before it: it downloads, tokenizes or loads weights while the "
         "others wait. Raise the timeout of init_process_group, or let it do so earlier.",
         "DDP505: the collective is called on some ranks only.",
         "The store's process has ended (\"Connection reset by peer\")."},
    .run = "shows which rank is missing, and what it is doing",
    .fields = {{"waiting rank of the group", ""},
               {"key", "key-value store by key '"},
               {"error", "got error: ", kEndOfLine}},
};

// ProcessGroupNCCL.cpp, WorkNCCL::handleException and Watchdog::runLoop.
const KnownText kTakenDown = {
    .id = "nccl-process-taken-down",
    .depth = Depth::kConsequence,
    .rules = {&kRankCrashed},
    .phrases = {{"Some NCCL operations have failed or timed out"},
                {"To avoid data inconsistency, we are taking the entire process down"},
                {"To avoid inconsistency, we are taking the entire process down"},
                {"To avoid data inconsistency, we are tearing the process down"},
                {"Aborting process on rank "},  // nccl2/ProcessGroupNCCL.cpp
                {"nccl hit async error on rank"},
                {"NCCL communicator was aborted after a previous error"},
                {"NCCL communicator was aborted on rank"},
                {"NCCL watchdog thread terminated with exception"},
                {"Process group watchdog thread terminated with exception"}},
    .part_of = {"collective-timeout", "peer-lost", "nccl-watchdog-cuda", "nccl-cuda-error",
                "nccl-system-error", "nccl-internal-error", "nccl-invalid-usage",
                "nccl-duplicate-gpu"},
    .versions = {{"taking the entire process down", "about 1.10 and later"}},
    .says = "NCCL's watchdog ended this process after a collective failed or timed out.",
    .means = {"This is a consequence: NCCL gave up, and the reason is in an earlier line or on "
              "another rank.",
              "Kernels run asynchronously, so the program may have gone on with data that never "
              "arrived. The watchdog prevents that (TORCH_NCCL_ASYNC_ERROR_HANDLING)."},
    .causes = {"A collective timed out: look for \"Watchdog caught collective operation timeout\".",
               "DDP504: a CUDA error on this rank, or a rank that exited. Look for the first error "
               "above this line, on every rank."},
    .run = "names the first rank that failed or stopped, in which step and phase",
};

const KnownText kWatchdogCuda = {
    .id = "nccl-watchdog-cuda",
    .rules = {&kRankCrashed},
    .phrases = {{"watchdog thread terminated with exception: CUDA error"}},
    .says = "The watchdog met a CUDA error of this rank, while it checked on a collective.",
    .means = {"The watchdog is only the first to see the error. It comes from a kernel that this "
              "rank launched earlier, and not from the communication."},
    .causes =
        {"An illegal memory access or a device-side assert in the program: an index that is out of "
         "range for an embedding or a cross-entropy, a custom kernel.",
         "A GPU that fell off the bus, or an ECC error: see dmesg for \"Xid\". Then it is always "
         "the same machine.",
         "Memory that was freed while a collective on it was under way."},
    .commands =
        {{"CUDA_LAUNCH_BLOCKING=1",
          "run again with this setting: the error is then raised at the kernel's own line"}},
    .run = "on CPUs raises an index that is out of range in its own line, with its rank and step",
    .fields = {{"CUDA error", "CUDA error: ", kEndOfLine}},
};

// ProcessGroupNCCL.cpp, HeartbeatMonitor; since 2.2.
const KnownText kWatchdogStuck = {
    .id = "nccl-watchdog-stuck",
    .depth = Depth::kConsequence,
    .rules = {&kStalledRank, &kRankCrashed},
    .phrases = {{"watchdog got stuck for "},
                {"Heartbeat monitor timed out!"},
                {"First PG on this rank that detected no heartbeat"},
                {"due to ProcessGroupNCCL watchdog hang"}},
    .versions = {{"Terminating the process after attempting to dump debug info",
                  "about 2.5 and later"},
                 {"Heartbeat monitor timed out!", "about 2.2 to 2.4"}},
    .says =
        "The thread that watches NCCL made no progress, and the heartbeat monitor ended the "
        "process.",
    .means = {"It is not about one collective: a CUDA or NCCL call inside the watchdog blocks, or "
              "Python's lock is never released.",
              "With collective timeouts in the same log, start with those. Without them, a longer "
              "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC shows whether it was only slow."},
    .causes =
        {"A kernel or a collective hangs on the GPU, so that every later CUDA call of the process "
         "blocks. Usually another rank never issued that collective (DDP501, DDP502).",
         "At the end of a program: destroy_process_group() was never called, or not on all ranks.",
         "A thread holds the GIL inside a CUDA call (a data loader that uses CUDA, py-spy or a "
         "debugger)."},
    .commands = {{"py-spy dump --native --pid PID",
                  "on a rank that hangs, before the monitor ends it, shows what blocks"}},
    .run = "shows which rank was missing, what it was doing and since when",
    .fields = {{"stuck for", "watchdog got stuck for ", " without"},
               {"outstanding collectives", "workMetaList_.size()="},
               {"process group", "PG GUID ", " Rank"}},
};

const KnownText kFlightRecorder = {
    .id = "nccl-flight-recorder",
    .severity = Severity::kAdvice,
    .depth = Depth::kConsequence,
    .phrases = {{"Observed flight recorder dump signal from another rank"},
                {"ProcessGroupNCCL preparing to dump debug info"},
                {"Finished writing NCCLPG debug info to"},
                {"Finished writing Flight Recorder debug info to"},
                {"Observed global timeout signal from another rank"},
                {"Stack trace of the failed collective not found"}},
    .part_of = {"collective-timeout", "nccl-watchdog-stuck"},
    .versions = {{"flight recorder dump signal", "about 2.5 and later"}},
    .says =
        "PyTorch's Flight Recorder wrote, or tried to write, the last collectives of each rank.",
    .means =
        {"It is recorded only if TORCH_NCCL_TRACE_BUFFER_SIZE (TORCH_FR_BUFFER_SIZE in newer "
         "versions) was larger than 0. The files are TORCH_NCCL_DEBUG_INFO_TEMP_FILE, then the "
         "rank."},
    .causes = {"Another rank timed out in a collective, and told this one through the store."},
    .commands =
        {{"python -m torch.distributed.flight_recorder.fr_trace FOLDER",
          "compares the dumps of the ranks (in older versions it is tools/flight_recorder of "
          "PyTorch's repository)"}},
    .run = "shows which rank was missing, without a dump",
};

const KnownText kNotDestroyed = {
    .id = "process-group-not-destroyed",
    .severity = Severity::kAdvice,
    .depth = Depth::kWarning,
    .phrases = {{"process group has NOT been destroyed before"},
                {"was not finalized before destruction", Context::kNearTorchWords},
                {"NCCL communicator hasn't been destroyed"},
                {"destroy_process_group() was not called before program exit"}},
    .versions = {{"process group has NOT been destroyed", "2.4 and later"}},
    .says = "The program ended without destroy_process_group().",
    .means =
        {"Harmless after the last step. Collectives that were still under way are cut off, and "
         "other ranks may report a lost connection."},
    .causes = {"Call torch.distributed.destroy_process_group() at the end, on every rank.",
               "An error ended the program before that call: then the error is what matters."},
};

}  // namespace

KnownTexts watchdog_texts() {
  static constexpr std::array kTexts = {&kInitTimeout,  &kUniqueId,      &kTakenDown,
                                        &kWatchdogCuda, &kWatchdogStuck, &kFlightRecorder,
                                        &kNotDestroyed};
  return kTexts;
}

}  // namespace ddp_doctor
