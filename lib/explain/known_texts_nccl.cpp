// SPDX-License-Identifier: BSD-3-Clause
// Errors of NCCL's calls: src/init.cc in NCCL, and getNcclErrorDetailStr in PyTorch's
// NCCLUtils.cpp.
#include <array>

#include "lib/explain/known_texts.h"

namespace ddp_doctor {
namespace {

constexpr char kNcclDebug[] =
    "run again with this setting: NCCL then prints the call that failed, and its errno or CUDA "
    "error";

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
         "More ranks on the machine than GPUs: --nproc_per_node, or CUDA_VISIBLE_DEVICES.",
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

}  // namespace

KnownTexts nccl_texts() {
  static constexpr std::array kTexts = {&kDuplicateGpu,   &kInvalidUsage, &kInvalidArgument,
                                        &kCudaError,      &kSystemError,  &kInternalError,
                                        &kVersionMismatch};
  return kTexts;
}

}  // namespace ddp_doctor
