// SPDX-License-Identifier: BSD-3-Clause
// Process groups without a fitting backend, and the store: ProcessGroup.hpp, ProcessGroupNCCL.cpp,
// TCPStore.cpp and socket.cpp under torch/csrc/distributed/c10d.
#include <array>

#include "lib/explain/known_texts.h"

namespace ddp_doctor {
namespace {

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

// ProcessGroupNCCL.cpp, and torch/distributed/distributed_c10d.py
const KnownText kNoGpu = {
    .id = "nccl-no-gpu",
    .phrases = {{"ProcessGroupNCCL is only supported with GPUs"},
                {"nccl2 requires at least one CUDA device"},
                {"Distributed package doesn't have NCCL built in"}},
    .says = "The backend is NCCL, and this process sees no GPU, or its torch has no NCCL.",
    .causes = {"A CPU build of torch, Windows or macOS: use backend=\"gloo\".",
               "CUDA_VISIBLE_DEVICES is empty, the driver is too old, or the container was started "
               "without GPUs (docker run --gpus all)."},
    .commands = {{"python -c \"import torch; print(torch.__version__, torch.cuda.is_available(), "
                  "torch.distributed.is_nccl_available())\"",
                  "on that machine"}},
    .run = "on CPUs uses Gloo",
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

KnownTexts process_group_texts() {
  static constexpr std::array kTexts = {&kNoBackend, &kNeedsCuda, &kNoGpu, &kStoreLost,
                                        &kPortTaken};
  return kTexts;
}

}  // namespace ddp_doctor
