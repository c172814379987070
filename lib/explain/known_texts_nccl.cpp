// SPDX-License-Identifier: BSD-3-Clause
// Errors of NCCL, of its watchdog, and of the store. NCCL: src/init.cc. PyTorch, under
// torch/csrc/distributed/c10d: NCCLUtils.cpp, ProcessGroupNCCL.cpp, ProcessGroup.hpp, TCPStore.cpp,
// socket.cpp.
#include <array>

#include "lib/explain/known_texts.h"

namespace ddp_doctor {
namespace {

constexpr char kNcclDebug[] =
    "run again with this setting: NCCL then prints the call that failed, and its errno or CUDA "
    "error";
constexpr char kIsConsequence[] =
    "This is a consequence: NCCL gave up, and the reason is in an earlier line or on another rank.";

// ncclGetLastError's line follows in torch 2.0 and later.
const std::vector<MessageField> kNcclFields = {{"NCCL version", "NCCL version "},
                                               {"last error", "Last error: ", kEndOfLine}};

// src/init.cc, commAlloc and initTransportsRank.
const KnownText kDuplicateGpu = {
    .id = "nccl-duplicate-gpu",
    .phrases = {{"Duplicate GPU detected"}},
    .says = "Two ranks of one machine use the same GPU. NCCL needs one for each.",
    .means = {"It is raised by the first collective, not by init_process_group. Each rank created "
              "its tensors on the same device, usually cuda:0."},
    .causes =
        {"torch.cuda.set_device(int(os.environ[\"LOCAL_RANK\"])) is missing, or comes after the "
         "first use of CUDA. A fixed device (cuda:0, .cuda(0)) has the same effect.",
         "More ranks on the machine than GPUs: --nproc-per-node, or CUDA_VISIBLE_DEVICES.",
         "The launcher starts a job per rank: RANK differs and LOCAL_RANK is 0 in each, or two "
         "jobs share one address and port.",
         "A scheduler (Ray, Slurm) gives each process the same CUDA_VISIBLE_DEVICES."},
    .commands = {{"echo $CUDA_VISIBLE_DEVICES; nvidia-smi -L",
                  "on each machine, from the launcher: as many GPUs as ranks?"}},
    .run = "on CPUs and Gloo shows whether the program itself trains with as many ranks",
    .fields = {{"ranks", "Duplicate GPU detected : ", " both"},
               {"CUDA device", "both on CUDA device "}},
};

const KnownText kInvalidUsage = {
    .id = "nccl-invalid-usage",
    .phrases = {{"ncclInvalidUsage"},
                {"invalid usage (run with NCCL_DEBUG"},
                {", invalid usage, NCCL version"}},
    .part_of = {"nccl-duplicate-gpu"},
    .says = "NCCL refused a call: it was used in a way that it does not allow.",
    .causes = {"Two ranks use the same GPU: set the device of each rank from LOCAL_RANK before the "
               "first collective.",
               "A collective was called on a communicator whose ranks run different versions of "
               "NCCL, or that was already aborted.",
               "Sends and receives that do not match within one batch_isend_irecv."},
    .commands = {{"NCCL_DEBUG=WARN", kNcclDebug}},
    .fields = kNcclFields,
};

const KnownText kInvalidArgument = {
    .id = "nccl-invalid-argument",
    .phrases = {{"ncclInvalidArgument"},
                {"invalid argument (run with NCCL_DEBUG"},
                {", invalid argument, NCCL version"}},
    .says = "NCCL refused an argument of a call.",
    .causes = {"A tensor is on another GPU than the rank's: check tensor.device against "
               "torch.cuda.current_device().",
               "A root or a peer that is not a rank of this process group: src and dst are global "
               "ranks, group_src and group_dst are ranks of the group.",
               "A tensor was freed, or resized to 0, while a collective on it was under way."},
    .commands = {{"NCCL_DEBUG=WARN", kNcclDebug}},
    .fields = kNcclFields,
};

const KnownText kCudaError = {
    .id = "nccl-cuda-error",
    .rules = {&kRankCrashed},
    .phrases = {{"ncclUnhandledCudaError"},
                {"unhandled cuda error"},
                {"Cuda failure", Context::kNearTorchWords}},
    .says = "A CUDA call inside NCCL failed on this rank.",
    .means = {"The line \"Cuda failure\" names the CUDA error. An error of an earlier kernel is "
              "often reported here, because NCCL is the next to ask for errors.",
              "Other ranks then wait for this one, and time out or lose the connection."},
    .causes =
        {"Out of memory: NCCL allocates buffers of its own, outside PyTorch's allocator, and the "
         "GPU was full. Leave a few hundred megabytes free, or lower the batch size.",
         "An earlier kernel failed (illegal memory access, a device-side assert from an index that "
         "is out of range): run with CUDA_LAUNCH_BLOCKING=1 to see which.",
         "The rank's device was not set before the first collective, or the GPU is in use by "
         "another process in exclusive mode.",
         "NCCL or PyTorch was built for another CUDA version than the driver supports. "
         "Peer-to-peer "
         "or shared memory is unavailable in the container: NCCL_P2P_DISABLE=1 tells."},
    .commands = {{"NCCL_DEBUG=INFO CUDA_LAUNCH_BLOCKING=1", kNcclDebug}},
    .fields = {{"NCCL version", "NCCL version "}, {"CUDA error", "Cuda failure ", kEndOfLine}},
};

const KnownText kSystemError = {
    .id = "nccl-system-error",
    .depth = Depth::kCollective,
    .rules = {&kRankCrashed},
    .phrases = {{"ncclSystemError"}, {"unhandled system error"}},
    .says = "A system call inside NCCL failed: sockets, shared memory, or InfiniBand.",
    .means = {"If a rank of this log has an error of its own, this follows from it: NCCL before "
              "2.13 reports a peer that has exited in these words, too."},
    .causes = {"DDP504: another rank exited, and this one lost the connection.",
               "A network interface that the other machines cannot reach (docker0, a VPN): set "
               "NCCL_SOCKET_IFNAME.",
               "Too little shared memory in the container: docker run --shm-size, or --ipc=host.",
               "InfiniBand is there and cannot be used: NCCL_IB_DISABLE=1 tells.",
               "Too many open files, or too little locked memory: ulimit -n, ulimit -l."},
    .commands = {{"NCCL_DEBUG=INFO", kNcclDebug}},
    .run = "names the first rank that failed, if one did",
    .fields = kNcclFields,
};

const KnownText kInternalError = {
    .id = "nccl-internal-error",
    .depth = Depth::kCollective,
    .rules = {&kRankCrashed},
    .phrases = {{"ncclInternalError"},
                {"internal error - please report this issue to the NCCL"},
                {", internal error, NCCL version"}},
    .part_of = {"nccl-duplicate-gpu"},
    .says = "An internal check of NCCL failed.",
    .means = {"Rarely a bug of NCCL: its own warning above this line says what it met."},
    .causes = {"GPUs or network cards are not visible to a container as they are to the machine: "
               "the detection of the topology fails.",
               "Ranks of one job run different versions of NCCL or of the driver.",
               "DDP504: another rank exited while the communicator was being made."},
    .commands = {{"NCCL_DEBUG=WARN", kNcclDebug}},
    .fields = kNcclFields,
};

const KnownText kVersionMismatch = {
    .id = "nccl-version-mismatch",
    .phrases = {{"Mismatched NCCL version detected"}},
    .says = "The ranks of one communicator run different versions of NCCL.",
    .causes = {"Machines have different environments: another torch, another pip package "
               "nvidia-nccl, or another LD_LIBRARY_PATH or LD_PRELOAD."},
    .commands = {{"python -c \"import torch; print(torch.__version__, torch.cuda.nccl.version())\"",
                  "on each machine"}},
    .fields = {{"versions", "Mismatched NCCL version detected : ", "."}},
};

const KnownText kInitTimeout = {
    .id = "nccl-init-timeout",
    .depth = Depth::kCollective,
    .rules = {&kStalledRank, &kRankCrashed},
    .phrases = {{"NCCL timeout in communicator initialization"},
                {"NCCL timeout when waiting for nonblocking call"}},
    .versions = {{"NCCL timeout in communicator initialization", "2.1 and later"}},
    .says = "A communicator was not ready in time: some ranks did not come, or cannot be reached.",
    .causes = {"DDP504: a rank ended before its first collective; its own output shows why.",
               "DDP501: a rank is still loading data or weights, and calls its first collective "
               "later than the timeout.",
               "The store (MASTER_ADDR) is reachable and the network that NCCL chose is not: set "
               "NCCL_SOCKET_IFNAME."},
    .commands = {{"NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET", kNcclDebug}},
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
                {"NCCL communicator was aborted on rank"},
                {"NCCL watchdog thread terminated with exception"},
                {"Process group watchdog thread terminated with exception"}},
    .part_of = {"collective-timeout", "nccl-watchdog-cuda", "nccl-cuda-error", "nccl-system-error",
                "nccl-internal-error", "nccl-invalid-usage", "nccl-duplicate-gpu"},
    .versions = {{"taking the entire process down", "about 1.10 and later"}},
    .says = "NCCL's watchdog ended this process after a collective failed or timed out.",
    .means = {kIsConsequence,
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
    .phrases = {{"watchdog thread terminated with exception: CUDA error"},
                {"watchdog thread terminated with exception: [Rank"}},
    .not_before = "Watchdog caught",
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
    .versions = {{"Terminating the process after attempting to dump debug info", "2.5 and later"},
                 {"Heartbeat monitor timed out!", "2.2 to 2.4"}},
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
    .versions = {{"flight recorder dump signal", "2.5 and later"}},
    .says =
        "PyTorch's Flight Recorder wrote, or tried to write, the last collectives of each rank.",
    .means =
        {"It is recorded only if TORCH_NCCL_TRACE_BUFFER_SIZE (TORCH_FR_BUFFER_SIZE in newer "
         "versions) was larger than 0. The files are TORCH_NCCL_DEBUG_INFO_TEMP_FILE, then the "
         "rank."},
    .causes = {"Another rank timed out in a collective, and told this one through the store."},
    .commands =
        {{"python -m torch.distributed.flight_recorder.fr_trace -j FOLDER",
          "compares the dumps of the ranks (in older versions it is tools/flight_recorder of "
          "PyTorch's repository)"}},
    .run = "shows which rank was missing, without a dump",
};

const KnownText kNotDestroyed = {
    .id = "process-group-not-destroyed",
    .severity = Severity::kAdvice,
    .depth = Depth::kWarning,
    .phrases = {{"process group has NOT been destroyed before"},
                {"destroy_process_group() was not called before program exit"}},
    .versions = {{"process group has NOT been destroyed", "2.4 and later"}},
    .says = "The program ended without destroy_process_group().",
    .means =
        {"Harmless after the last step. Collectives that were still under way are cut off, and "
         "other ranks may report a lost connection."},
    .causes = {"Call torch.distributed.destroy_process_group() at the end, on every rank.",
               "An error ended the program before that call: then the error is what matters."},
};

// ProcessGroup.hpp, getBackend.
const KnownText kNoBackend = {
    .id = "no-backend-for-device",
    .phrases = {{"No backend type associated with device type"},
                {"FSDP CPU offloading requires backend supporting cpu tensors"}},
    .versions = {{"No backend type associated", "2.0 and later"}},
    .says =
        "A collective was called on a tensor whose device the process group has no backend for.",
    .means = {"init_process_group(\"nccl\") makes a group for CUDA tensors alone, and \"gloo\" one "
              "that other accelerators cannot use."},
    .causes =
        {"A tensor was left on the CPU: a metric, a loss that was moved for logging, a module that "
         "was not moved. Move it to the rank's device before the collective.",
         "CPU offloading (FSDP, FSDP2, torchtune): collectives then have CPU tensors as well. Use "
         "init_process_group(\"cpu:gloo,cuda:nccl\").",
         "Checkpoints or full_tensor() on a model that was moved to the CPU.",
         "The opposite: a CUDA tensor in a group that was made with backend=\"gloo\" by another "
         "library, or on a machine without a GPU."},
    .run = "shows the collective's file and line, if the program gets as far as its first step",
    .fields = {{"device", "associated with device type "},
               {"backend", "Found following backend: "}},
};

const KnownText kNeedsCuda = {
    .id = "nccl-needs-cuda",
    .phrases = {{"Tensors must be CUDA and dense"}, {"only supports CUDA tensors for collective"}},
    .says = "A CPU tensor or a sparse tensor was given to NCCL.",
    .causes = {"The module was wrapped before it was moved to the GPU, or some of its buffers were "
               "not moved: call model.to(device) first.",
               "A tensor for a metric or a flag was made without device=.",
               "A sparse gradient (nn.Embedding(sparse=True)): NCCL has no sparse all-reduce."},
    .run = "on CPUs and Gloo runs the program as it is, and names the collective",
};

// socket.cpp and TCPStore.cpp.
const KnownText kStoreLost = {
    .id = "store-lost",
    .depth = Depth::kConsequence,
    .rules = {&kRankCrashed},
    .phrases = {{"sendBytes failed on"},
                {"recvBytes failed on"},
                {"recvValue failed on"},
                {"recvVector failed on"},
                {"Failed to recv, got 0 bytes"},
                {"failed to recv, got 0 bytes"},
                {"Failed to send, sent 0 bytes"},
                {"Failed to check the \"should dump\" flag on TCPStore"},
                {"DistNetworkError: Connection reset by peer"},
                {"DistNetworkError: Broken pipe"}},
    .versions = {{"Failed to recv, got 0 bytes", "2.6 and later"}},
    .hints = {{"should dump",
               "The heartbeat monitor reports it. After the last step it only means that rank 0 "
               "ended earlier than this rank: call destroy_process_group() at the end."}},
    .says = "The store, through which ranks meet, is gone: the process that hosts it has ended.",
    .means =
        {"Rank 0 hosts the store, or torchrun's agent on the first machine. Every rank keeps a "
         "connection to it for its whole life.",
         "Whatever ended that process comes first. This rank did nothing wrong."},
    .causes =
        {"DDP504: rank 0 failed. Look at its own output first.",
         "torchrun ended the job after another rank failed, and its agent took the store with "
         "it.",
         "The program had finished on rank 0, and not yet on this rank.",
         "The network between the machines was interrupted."},
    .run = "names the first rank that failed and its error",
    .fields = {{"store", "remote=[", ")"}},
};

const KnownText kPortTaken = {
    .id = "port-taken",
    .phrases = {{"The server socket has failed to listen on any local network address"},
                {"The server socket has failed to bind"},
                {"Address already in use", Context::kNearTorchWords},
                {"EADDRINUSE", Context::kNearTorchWords}},
    .says = "The port where the ranks were to meet is in use by another process.",
    .causes =
        {"Another job on this machine uses the same port, or an earlier one is still running. "
         "torchrun's and PyTorch's default is 29500.",
         "init_process_group is called twice with the same address, or a child process calls "
         "it again (spawned workers that re-import the script: guard it with if __name__ == "
         "\"__main__\").",
         "Two ranks believe that they are rank 0."},
    .commands = {{"torchrun --standalone ...",
                  "chooses a free port by itself; or choose one with --master-port"},
                 {"ss -ltnp | grep 29500", "shows who holds the port"}},
    .fields = {{"port", "port: "}},
};

}  // namespace

KnownTexts nccl_texts() {
  static constexpr std::array kTexts = {
      &kDuplicateGpu,  &kInvalidUsage,    &kInvalidArgument, &kCudaError,    &kSystemError,
      &kInternalError, &kVersionMismatch, &kInitTimeout,     &kUniqueId,     &kTakenDown,
      &kWatchdogCuda,  &kWatchdogStuck,   &kFlightRecorder,  &kNotDestroyed, &kNoBackend,
      &kNeedsCuda,     &kStoreLost,       &kPortTaken};
  return kTexts;
}

}  // namespace ddp_doctor
