// SPDX-License-Identifier: BSD-3-Clause
// Errors of process groups when ranks do not issue the same collectives:
// torch/csrc/distributed/c10d, Gloo, NCCL, torchrun.
#include <array>

#include "lib/explain/known_texts.h"
#include "lib/explain/wording/phrases.h"

namespace ddp_doctor {
namespace {

constexpr char kPairedByOrder[] =
    "Collectives are paired by their order in the process group. The ranks may have diverged well "
    "before the call that fails: after one extra or missing call on a rank, every later call is "
    "paired with the wrong one.";
constexpr char kOneRankAlone[] =
    "DDP505: one rank alone validates, logs or saves. A forward of the wrapper broadcasts buffers, "
    "even under no_grad.";
constexpr char kOutOfData[] =
    "DDP503: a rank ran out of data, or left its training loop, while others still train.";
constexpr char kOtherGraph[] =
    "DDP202: ranks used different parameters, so their buckets differ or never fill.";
constexpr char kByHand[] =
    "DDP111: a hand-written all-reduce of gradients under a condition (if p.grad is not None: "
    "all_reduce).";
constexpr char kComparesCalls[] =
    "compares the calls of all ranks and names the first one that differs, with file and line";

const KnownText kMismatchedCalls = {
    .id = "collective-mismatch",
    .severity = Severity::kError,
    .certainty = Certainty::kCertain,
    .depth = Depth::kCollective,
    .rules = {&kCollectiveMismatch, &kRankDependentGraph, &kRankDependentManualSync,
              &kRankLocalCollective},
    .phrases = {{phrases::kMismatchedCalls},
                {"Mismatched collective detected"},
                {"collective mismatch error, local size"}},
    .versions = {{"is running inconsistent collective", "about 1.9 to 1.12"},
                 {"Collectives differ in the following aspects", "about 2.1 and later"},
                 {"CollectiveFingerPrint(SequenceNumber=", "about 2.0 and later"},
                 {"but Rank", "about 1.13 and later"}},
    .says =
        "Ranks entered different collectives at the same position, or the same collective with "
        "different shapes.",
    .means = {"TORCH_DISTRIBUTED_DEBUG=DETAIL checked this before any data was sent. Without it, "
              "this is a hang, an abort, or wrong results without an error.",
              kPairedByOrder},
    .causes = {kOtherGraph, kByHand, kOneRankAlone, kOutOfData,
               "DDP502: a metric is reduced for each key of a dictionary whose keys differ across "
               "ranks, or a `continue` skips a bad batch."},
    .run = kComparesCalls,
    .read = read_fingerprints,
    .weigh = weigh_fingerprints,
};

const KnownText kGlooSizes = {
    .id = "gloo-sizes",
    .severity = Severity::kError,
    .certainty = Certainty::kCertain,
    .depth = Depth::kCollective,
    .rules = {&kCollectiveMismatch, &kRankDependentManualSync, &kRankDependentGraph,
              &kModelMismatch},
    .phrases = {{phrases::kGlooSizes}, {"Received data size doesn't match expected size"}},
    .versions = {{"Received data size doesn't match", "about 2.9 and later"},
                 {"op.preamble.length", "before about 2.9"}},
    .says =
        "Gloo received a message of a different size than this rank expected, and aborted the "
        "process.",
    .means =
        {"Two ranks are in different collectives, or in the same collective with different sizes.",
         "Gloo checks only the size. If the sizes happen to match, ranks add up unrelated values "
         "without an error.",
         "The rank that aborts is not necessarily at fault; its peers report a lost connection.",
         kPairedByOrder},
    .causes = {kByHand, kOtherGraph,
               "DDP306: the models differ, and the loop averages them by hand. A wrapper would "
               "have compared them.",
               kOneRankAlone, "DDP502: the size of a tensor depends on the rank's batch."},
    .run = kComparesCalls,
    .read = read_sizes,
};

const KnownText kMonitoredBarrier = {
    .id = "monitored-barrier",
    .severity = Severity::kError,
    .certainty = Certainty::kLikely,
    .depth = Depth::kCollective,
    .rules = {&kStalledRank, &kRankCrashed, &kUnevenInputs, &kRankLocalCollective},
    .phrases = {{"failed to pass monitoredBarrier"}},
    .says = "Rank 0 waited in a monitored barrier for ranks that did not reach it.",
    .means = {"Unlike other timeouts, this one names the missing ranks. Without "
              "wait_all_ranks=True it names only the first of them."},
    .causes = {"DDP504: that rank has ended; its own output shows why.",
               "DDP501: it is busy or stuck: in loading, in saving, on a lock.", kOutOfData,
               kOneRankAlone},
    .run = "shows the step and phase of each rank",
    .read = read_barrier,
    .weigh = weigh_suspects,
};

const KnownText kCollectiveTimeout = {
    .id = "collective-timeout",
    .severity = Severity::kError,
    .certainty = Certainty::kLikely,
    .depth = Depth::kCollective,
    .rules = {&kStalledRank, &kRankCrashed, &kUnevenInputs, &kRankLocalCollective,
              &kCollectiveMismatch},
    .phrases = {{"ollective operation timeout"},
                {"ms for recv operation to complete"},
                {"ms for send operation to complete"},
                {"Application timeout caused pair closure"},
                {"timed out in blocking wait"},
                {"timed out in call to wait()"},
                {"Timeout at NCCL work"},
                {"Received a dump signal due to a collective timeout"},
                {"timeout watchdog detected operation timeout"},  // nccl2/ProcessGroupNCCL.cpp
                {"timeout - collective operation timed out"},
                {"NCCL operation timed out"}},
    .not_after = {"Original exception"},
    .versions = {{"timeout watchdog detected", "about 2.15 and later"},
                 {"NumelIn=", "about 2.2 and later"},
                 {"WorkNCCL(SeqNum=", "about 1.12 and later"},
                 {"WorkNCCL(OpType=", "about 1.11 and earlier"}},
    .hints =
        {{"OpType=_ALLGATHER_BASE",
          "FSDP and ZeRO-3 gather the parameters of each module by _ALLGATHER_BASE before its "
          "forward and its backward: every rank must run the same modules, in the same order."},
         {"OpType=_REDUCE_SCATTER_BASE",
          "FSDP and ZeRO reduce gradients by _REDUCE_SCATTER_BASE: a rank whose backward skips "
          "a module leaves the others waiting."},
         {"OpType=ALLTOALL",
          "ALLTOALL is expert parallelism or a sequence that is divided among the ranks "
          "(Ulysses)."},
         {"OpType=SEND",
          "SEND and RECV are between two ranks, usually pipeline stages: the "
          "neighbour that did not call is the one to look at."},
         {"OpType=RECV",
          "SEND and RECV are between two ranks, usually pipeline stages: the "
          "neighbour that did not call is the one to look at."}},
    .says =
        "A rank waited in a collective until its timeout: another rank did not issue it, or issued "
        "a different one.",
    .means = {"The rank that reports the timeout was waiting and is usually not at fault. Look at "
              "ranks that report no timeout, or a lower sequence number.",
              "A longer timeout helps only if a rank is slow by design, for example if it prepares "
              "the data while the others wait at a barrier.",
              "The number of elements shows what it was: 1 is a barrier or a metric, millions are "
              "a gradient bucket."},
    .causes = {"DDP501: a rank is stuck or slow: its data loader, a lock, a checkpoint that only "
               "one rank writes.",
               "DDP504: a rank has ended; its own output shows why.", kOutOfData, kOneRankAlone,
               "DDP202: a rank used none of the wrapped parameters in this step, so its backward "
               "issued no all-reduce, even with find_unused_parameters=True.",
               "DDP502: the ranks issue different calls; the sequence numbers then differ.",
               "The network or a GPU, if it is always the same machine but not the same call."},
    .run =
        "ends the job once it can no longer continue, and shows which rank was missing, what it "
        "was doing and since when (py-spy dump --pid PID shows its stack)",
    .read = read_timeouts,
    .weigh = weigh_timeouts,
};

const KnownText kStartTimeout = {
    .id = "start-timeout",
    .severity = Severity::kError,
    .certainty = Certainty::kLikely,
    .depth = Depth::kCollective,
    .rules = {&kStalledRank, &kRankCrashed},
    .phrases = {{"clients joined"},
                {"Timed out initializing process group in store based barrier"},
                {"client socket has timed out", Context::kNearTorchWords},
                {"Socket Timeout", Context::kNearTorchWords},
                {"wait timeout after", Context::kNearTorchWords}},
    .not_after = {"is setting up NCCL communicator"},
    .hints = {{"timeout_dump",
               "The key is the heartbeat monitor's: it asked the store whether another "
               "rank wants a dump, and got no answer."}},
    .says = "Not all ranks joined the process group at startup.",
    .means = {"Training has not started. The store counts processes, and some never joined.",
              "Later in a run, it is a rank that waits for another at the store: a barrier of "
              "torchrun, or a group that is being made."},
    .causes = {"A rank failed before init_process_group: its own output shows why.",
               "The world size is larger than the number of processes that were launched.",
               "A wrong address, port or network interface on some machine (MASTER_ADDR, "
               "MASTER_PORT, GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME), or a firewall."},
    .run =
        "launches the ranks on one machine, which shows whether the program or the launch is at "
        "fault",
    .fields = {{"address", "trying to connect to ", kEndOfLine},
               {"timeout", "wait timeout after "},
               {"key", "keys: "}},
};

const KnownText kPeerLost = {
    .id = "peer-lost",
    .severity = Severity::kError,
    .certainty = Certainty::kLikely,
    .depth = Depth::kConsequence,
    .rules = {&kRankCrashed, &kUnevenInputs},
    .phrases = {{"onnection closed by peer"},
                {"Connection closed by remote peer"},
                {"remote process exited or there was a network error"},
                {"A call failed possibly due to a network error or a remote process exiting"},
                {"successfully reached monitoredBarrier, but received errors"},
                {"Connection reset by peer", Context::kNearTorchWords},
                {"Connection refused", Context::kNearTorchWords},
                {"Broken pipe", Context::kNearTorchWords},
                {"Socket closed", Context::kNearTorchWords},
                {"connectFullMesh", Context::kNearTorchWords}},
    .not_after = {"Original exception", "Bytes failed on", "recvValue failed on",
                  "recvVector failed on", "should dump"},
    .versions = {{"This is typically caused by a remote worker", "about 2.9 and later"}},
    .says = "The rank at the other end of a connection ended while this rank waited for it.",
    .means =
        {"This is a consequence, almost never the cause: another rank failed first, and this rank "
         "did nothing wrong. If any rank has an error of its own, the network is not the cause."},
    .causes = {"DDP504: another rank raised an exception. Its error is elsewhere in this log, or "
               "in that rank's log.",
               "DDP504: another rank was killed without an error message: out of memory (see "
               "dmesg), a scheduler, a signal. torchrun's summary shows its exit code.",
               "DDP503: another rank finished normally because it had fewer batches.",
               "Only at startup: a wrong address or a firewall."},
    .run = "names the first rank that failed and its error",
    .read = read_peer,
};

const KnownText kRootCause = {
    .id = "first-failure",
    .severity = Severity::kError,
    .certainty = Certainty::kLikely,
    .depth = Depth::kConsequence,
    .rules = {&kRankCrashed},
    .phrases = {{"Root Cause (first observed failure)"}},
    .hints = {{"SIGKILL",
               "Killed by SIGKILL, without an error message: usually by the system's out-of-memory "
               "killer (see dmesg), or by torchrun after another rank failed."},
              {"SIGABRT",
               "SIGABRT: the process aborted itself. Gloo and NCCL's watchdog do this after they "
               "print an error."}},
    .says = "torchrun reports the first rank that failed.",
    .means = {"It knows the order in which ranks on its machine exited, but not why: read that "
              "rank's own output."},
    .causes = {"The exception or signal that ended that rank."},
    .run = "records each rank's error, with step and phase",
    .read = read_root_cause,
    .weigh = weigh_suspects,
};

const KnownText kOwnError = {
    .id = "own-error",
    .severity = Severity::kError,
    .certainty = Certainty::kLikely,
    .depth = Depth::kCause,
    .rules = {&kRankCrashed},
    .phrases = {},
    .says = "An error that is none of the known texts ended a rank.",
    .means =
        {"Ranks wait for each other in every collective, so timeouts and lost connections on the "
         "other ranks are consequences of it."},
    .causes = {"See the error itself. If the log shows that the program caught it and continued, "
               "it matters only if that rank skipped a backward pass."},
    .run = "shows which rank failed first, in which step and phase",
};

}  // namespace

KnownTexts collective_texts() {
  static constexpr std::array kTexts = {&kMismatchedCalls,   &kGlooSizes,    &kMonitoredBarrier,
                                        &kCollectiveTimeout, &kStartTimeout, &kPeerLost,
                                        &kRootCause};
  return kTexts;
}

const KnownText& own_error_text() { return kOwnError; }

}  // namespace ddp_doctor
