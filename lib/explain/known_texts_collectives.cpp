// SPDX-License-Identifier: BSD-3-Clause
// What process groups say when ranks do not meet: torch/csrc/distributed/c10d, Gloo, NCCL,
// torchrun.
#include <array>

#include "lib/explain/known_texts.h"

namespace ddp_doctor {
namespace {

constexpr char kPairedByOrder[] =
    "Collectives are paired by their order in the process group. Where the ranks part may lie well "
    "before the call at which it shows: one call more or less on a rank, and from then on each "
    "meets the wrong one.";
constexpr char kOneRankAlone[] =
    "DDP505: one rank alone validates, logs or saves. A forward of the wrapper broadcasts buffers, "
    "under no_grad too.";
constexpr char kOutOfData[] =
    "DDP503: a rank ran out of data, or left its loop, while others train on.";
constexpr char kOtherGraph[] =
    "DDP202: ranks used different parameters, so that their buckets differ or never fill.";
constexpr char kByHand[] =
    "DDP111: gradients reduced by hand under a condition (if p.grad is not None: all_reduce).";
constexpr char kComparesCalls[] =
    "compares the calls of all ranks one by one and names the first at which they part, with file "
    "and line";

const KnownText kCollectiveMismatch = {
    .id = "collective-mismatch",
    .severity = Severity::kError,
    .certainty = Certainty::kCertain,
    .depth = Depth::kCollective,
    .rules = {"DDP502", "DDP202", "DDP111", "DDP505"},
    .phrases = {{"Detected mismatch between collectives"},
                {"Mismatched collective detected"},
                {"collective mismatch error, local size"}},
    .versions = {{"is running inconsistent collective", "about 1.9 to 1.12"},
                 {"Collectives differ in the following aspects", "about 2.1 and later"},
                 {"CollectiveFingerPrint(SequenceNumber=", "about 2.0 and later"},
                 {"but Rank", "about 1.13 and later"}},
    .says =
        "At the same position ranks entered different collectives, or the same one with "
        "different shapes.",
    .means = {"TORCH_DISTRIBUTED_DEBUG=DETAIL looked before any data moved. Without it this is a "
              "hang, an abort, or wrong numbers and no error.",
              kPairedByOrder},
    .causes = {kOtherGraph, kByHand, kOneRankAlone, kOutOfData,
               "DDP502: a metric reduced for each key of a dictionary whose keys differ, or a "
               "`continue` after a bad batch."},
    .run = kComparesCalls,
    .read = read_fingerprints,
    .weigh = weigh_fingerprints,
};

const KnownText kGlooSizes = {
    .id = "gloo-sizes",
    .severity = Severity::kError,
    .certainty = Certainty::kCertain,
    .depth = Depth::kCollective,
    .rules = {"DDP502", "DDP111", "DDP202", "DDP306"},
    .phrases = {{"op.preamble.length <= op.nbytes"},
                {"Received data size doesn't match expected size"}},
    .versions = {{"Received data size doesn't match", "about 2.9 and later"},
                 {"op.preamble.length", "before about 2.9"}},
    .says = "Gloo got a message of another size than this rank expected, and ended the process.",
    .means = {"Two ranks are in different collectives, or in the same one with different sizes.",
              "Gloo checks nothing else. Where sizes happen to fit, ranks add up unlike things "
              "without an error.",
              "The rank that aborts need not be the one at fault; its peers report a lost "
              "connection.",
              kPairedByOrder},
    .causes = {kByHand, kOtherGraph,
               "DDP306: the models differ, and the loop averages them without a wrapper, which "
               "would have compared them.",
               kOneRankAlone, "DDP502: a tensor whose size depends on the rank's batch."},
    .run = kComparesCalls,
    .read = read_sizes,
};

const KnownText kMonitoredBarrier = {
    .id = "monitored-barrier",
    .severity = Severity::kError,
    .certainty = Certainty::kLikely,
    .depth = Depth::kCollective,
    .rules = {"DDP501", "DDP504", "DDP503", "DDP505"},
    .phrases = {{"failed to pass monitoredBarrier"}},
    .says = "Rank 0 waited in a monitored barrier for ranks that did not come.",
    .means = {"Unlike other timeouts this one names the ranks that were missing. Without "
              "wait_all_ranks=True it names only the first of them."},
    .causes = {"DDP504: that rank has ended; its own output says why.",
               "DDP501: it is busy or stuck: loading, saving, a lock.", kOutOfData, kOneRankAlone},
    .run = "shows in which phase of which step each rank is",
    .read = read_barrier,
    .weigh = weigh_suspects,
};

const KnownText kCollectiveTimeout = {
    .id = "collective-timeout",
    .severity = Severity::kError,
    .certainty = Certainty::kLikely,
    .depth = Depth::kCollective,
    .rules = {"DDP501", "DDP504", "DDP503", "DDP505", "DDP502"},
    .phrases = {{"ollective operation timeout"},
                {"ms for recv operation to complete"},
                {"ms for send operation to complete"},
                {"Application timeout caused pair closure"},
                {"timed out in blocking wait"},
                {"timed out in call to wait()"},
                {"Timeout at NCCL work"}},
    .not_after = "Original exception",
    .versions = {{"NumelIn=", "about 2.2 and later"},
                 {"WorkNCCL(SeqNum=", "about 1.12 and later"},
                 {"WorkNCCL(OpType=", "about 1.11 and earlier"}},
    .says =
        "A rank waited in a collective until its timeout: another rank did not come, or came "
        "with something else.",
    .means = {"Whoever reports the timeout has waited, and is not the one to blame. Look at ranks "
              "that report none, or a lower number.",
              "A longer timeout helps only where a rank is slow by design, such as one that "
              "prepares the data while the others wait at a barrier.",
              "Elements tell what it was: 1 is a barrier or a metric, millions are a gradient "
              "bucket."},
    .causes = {"DDP501: a rank is stuck or slow: its data loader, a lock, a checkpoint written by "
               "one rank.",
               "DDP504: a rank has ended; its own output says why.", kOutOfData, kOneRankAlone,
               "DDP202: a rank used none of the wrapped parameters in this step, so that its "
               "backward joined no all-reduce, whatever find_unused_parameters says.",
               "DDP502: the ranks' calls are out of step; the numbers of the calls then differ.",
               "The network or a GPU, if it is always the same machine and never the same call."},
    .run =
        "ends the job after --timeout seconds, and tells which rank did not come, what it was "
        "doing and since when (py-spy dump --pid PID shows its stack)",
    .read = read_timeouts,
    .weigh = weigh_timeouts,
};

const KnownText kStartTimeout = {
    .id = "start-timeout",
    .severity = Severity::kError,
    .certainty = Certainty::kLikely,
    .depth = Depth::kCollective,
    .rules = {"DDP501", "DDP504"},
    .phrases = {{"clients joined"},
                {"Timed out initializing process group in store based barrier"},
                {"client socket has timed out", true},
                {"Socket Timeout", true},
                {"wait timeout after", true}},
    .says = "Not all ranks came to the meeting point at the start.",
    .means = {"No training has begun. The store counts processes, and some never arrived."},
    .causes = {"A rank failed before init_process_group: its own output says why.",
               "The world size is larger than the number of processes that were started.",
               "Another address, port or interface on some machine (MASTER_ADDR, MASTER_PORT, "
               "GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME), or a firewall."},
    .run =
        "starts the ranks of one machine itself, which tells whether the program or the launch "
        "is at fault",
};

const KnownText kPeerLost = {
    .id = "peer-lost",
    .severity = Severity::kError,
    .certainty = Certainty::kLikely,
    .depth = Depth::kConsequence,
    .rules = {"DDP504", "DDP503"},
    .phrases = {{"onnection closed by peer"},
                {"Connection closed by remote peer"},
                {"remote process exited or there was a network error"},
                {"A call failed possibly due to a network error or a remote process exiting"},
                {"NCCL communicator was aborted on rank"},
                {"successfully reached monitoredBarrier, but received errors"},
                {"Connection reset by peer", true},
                {"Connection refused", true},
                {"Broken pipe", true},
                {"Socket closed", true},
                {"connectFullMesh", true}},
    .not_after = "Original exception",
    .versions = {{"This is typically caused by a remote worker", "about 2.9 and later"}},
    .says = "The rank at the other end of a connection went away while this one waited for it.",
    .means = {"A consequence, hardly ever the cause: another rank fell first, and this one had "
              "nothing wrong with it. As long as any rank has an error of its own, it is not the "
              "network."},
    .causes = {"DDP504: another rank raised. Its error is elsewhere in the log, or in another "
               "rank's.",
               "DDP504: another rank was killed and left no words: out of memory (dmesg says so), "
               "a scheduler, a signal. torchrun's summary gives its exit code.",
               "DDP503: another rank ended well, with fewer batches.",
               "At the start only: a wrong address or a firewall."},
    .run = "names the first rank to fall and its error, whatever the others say",
    .read = read_peer,
};

const KnownText kRootCause = {
    .id = "first-failure",
    .severity = Severity::kError,
    .certainty = Certainty::kLikely,
    .depth = Depth::kConsequence,
    .rules = {"DDP504"},
    .phrases = {{"Root Cause (first observed failure)"}},
    .clues = {{"SIGKILL",
               "Killed by SIGKILL, without a word: most often the system's out-of-memory killer "
               "(dmesg), or torchrun itself after another rank had failed."},
              {"SIGABRT",
               "SIGABRT: the process ended itself, as Gloo and NCCL's watchdog do after an error "
               "that they print first."}},
    .says = "torchrun tells which rank it saw fail first.",
    .means = {"It knows the order of the exits on its own machine, not their reason: read that "
              "rank's own output."},
    .causes = {"The exception or signal of that rank."},
    .run = "keeps each rank's error, with step and phase",
    .read = read_root_cause,
    .weigh = weigh_suspects,
};

const KnownText kOwnError = {
    .id = "own-error",
    .severity = Severity::kError,
    .certainty = Certainty::kLikely,
    .depth = Depth::kCause,
    .rules = {"DDP504"},
    .phrases = {},
    .says = "An error that is not DistributedDataParallel's ended a rank.",
    .means = {"All ranks take part in every all-reduce, so that what the others say of timeouts "
              "and lost connections follows from it."},
    .causes = {"What the error itself says. If the log shows that the program caught it and went "
               "on, it matters only if that rank left out a backward pass."},
    .run = "tells which rank fell first, in which step and phase",
};

}  // namespace

KnownTexts collective_texts() {
  static constexpr std::array kTexts = {&kCollectiveMismatch, &kGlooSizes,    &kMonitoredBarrier,
                                        &kCollectiveTimeout,  &kStartTimeout, &kPeerLost,
                                        &kRootCause};
  return kTexts;
}

const KnownText& own_error_text() { return kOwnError; }

}  // namespace ddp_doctor
