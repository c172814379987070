// SPDX-License-Identifier: BSD-3-Clause
// The table of known texts: each has a message that it explains, alone. The messages are quoted
// from public issues where one is named, and otherwise made from the template in the source that
// the entry names.

#include "lib/explain/known_texts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "lib/explain/explanation.h"

namespace ddp_doctor {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Sample {
  const char* id;
  const char* text;
};

const Sample kSamples[] = {
    // NVIDIA/Megatron-LM#661
    {"nccl-duplicate-gpu",
     R"(torch.distributed.DistBackendError: NCCL error in: /opt/pytorch/pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1727, invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.19.3
ncclInvalidUsage: This usually reflects invalid usage of NCCL library.
Last error:
Duplicate GPU detected : rank 3 and rank 0 both on CUDA device f000)"},
    {"nccl-duplicate-gpu",
     R"(torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1275, internal error, NCCL version 2.14.3
ncclInternalError: Internal check failed.
Last error:
Duplicate GPU detected : rank 0 and rank 4 both on CUDA device 7000)"},
    {"nccl-invalid-usage",
     R"(torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.20.5
ncclInvalidUsage: This usually reflects invalid usage of NCCL library.)"},
    {"nccl-invalid-argument",
     R"(RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:1331, invalid argument (run with NCCL_DEBUG=WARN for details), NCCL version 2.18.1
ncclInvalidArgument: Invalid value for an argument.
Last error:
Invalid config blocking attribute value -2147483648)"},
    // NVIDIA/nccl#1410
    {"nccl-cuda-error",
     R"([rank7]: torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.20.5
[rank7]: ncclUnhandledCudaError: Call to CUDA function failed.
[rank7]: Last error:
[rank7]: Cuda failure 1 'invalid argument')"},
    // facebookresearch/SlowFast#462
    {"nccl-cuda-error",
     "RuntimeError: NCCL error in: /pytorch/torch/lib/c10d/ProcessGroupNCCL.cpp:911, unhandled "
     "cuda error, NCCL version 2.7.8"},
    {"nccl-system-error",
     R"(RuntimeError: NCCL error in: ../torch/lib/c10d/ProcessGroupNCCL.cpp:784, unhandled system error, NCCL version 2.7.8
ncclSystemError: System call (socket, malloc, munmap, etc) failed.)"},
    {"nccl-internal-error",
     R"(torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:317, internal error - please report this issue to the NCCL developers, NCCL version 2.21.5
ncclInternalError: Internal check failed.)"},
    {"nccl-version-mismatch",
     "node1:77:77 [0] init.cc:1043 NCCL WARN Mismatched NCCL version detected : rank 1 version "
     "22105 rank 0 version 22005"},
    {"nccl-init-timeout",
     "torch.distributed.DistBackendError: NCCL timeout in communicator initialization."},
    // NVIDIA-NeMo/Speech#14399
    {"nccl-unique-id",
     "[default1]:[rank1]: torch.distributed.DistBackendError: [1] is setting up NCCL communicator "
     "and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but "
     "store->get('0') "
     "got error: wait timeout after 600000ms, keys: /default_pg/0//cuda//0"},
    // zai-org/ChatGLM-6B#1232
    {"nccl-unique-id",
     "RuntimeError: [1] is setting up NCCL communicator and retreiving ncclUniqueId from [0] via "
     "c10d "
     "key-value store by key '0', but store->get('0') got error: Socket Timeout"},
    {"start-timeout",
     "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while "
     "trying "
     "to connect to (10.0.0.1, 29500)."},
    {"nccl-process-taken-down",
     "[rank4]:[E1016 03:31:38.92 ProcessGroupNCCL.cpp:627] [Rank 4] To avoid data inconsistency, "
     "we are taking the entire process down."},
    {"nccl-watchdog-cuda",
     R"([rank1]:[E1028 ProcessGroupNCCL.cpp:1896] [PG ID 0 PG GUID 0(default_pg) Rank 1] Process group watchdog thread terminated with exception: CUDA error: an illegal memory access was encountered
[rank1]: CUDA kernel errors might be asynchronously reported at some other API call)"},
    // modelscope/ms-swift#7992
    {"nccl-watchdog-stuck",
     "18:11:06.680 [rank4]:[E205 18:11:06.375750231 ProcessGroupNCCL.cpp:1870] [PG ID 12 PG GUID "
     "99(EXPERT_MODEL_PARALLEL_GROUP) Rank 4] ProcessGroupNCCL's watchdog got stuck for 480 "
     "seconds without making progress in monitoring enqueued collectives. This typically indicates "
     "a NCCL/CUDA API (e.g., CudaEventDestroy) hang blocking the watchdog"},
    // Intellindust-AI-Lab/DEIM#105
    {"nccl-watchdog-stuck",
     "[rank1]:[E ProcessGroupNCCL.cpp:1316] [PG 0 Rank 1] Heartbeat monitor timed out! Process "
     "will be terminated after dumping debug info. workMetaList_.size()=103"},
    {"process-group-not-destroyed",
     "[rank0]:[W1121 ProcessGroupNCCL.cpp:1250] Warning: WARNING: process group has NOT been "
     "destroyed before we destruct ProcessGroupNCCL. On normal program exit, the application "
     "should "
     "call destroy_process_group"},
    // om-ai-lab/VLM-R1#257, broken by the terminal
    {"nccl-watchdog-stuck",
     "[rank6]:[E429 13:55:49.384372190 ProcessGroupNCCL.cpp:1743] [PG ID 0 PG GUID 0(default_pg) "
     "Rank "
     "6] ProcessGroupNCCL'\ns watchdog got stuck for 480 seconds without making progress"},
    // pytorch/pytorch#118369
    {"collective-timeout",
     "RuntimeError: NCCL communicator was aborted on rank 7. Original reason for failure was: "
     "[Rank 7] "
     "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=64088, OpType=ALLREDUCE, "
     "Timeout(ms)=1800000) ran for 25625251 milliseconds before timing out."},
    // pytorch/torch/csrc/distributed/c10d/nccl2/ProcessGroupNCCL.cpp, of torch 2.15
    {"collective-timeout",
     "[rank1]:[E1121 ProcessGroupNCCL.cpp:801] Aborting process on rank 1 due to timeout - timeout "
     "watchdog detected operation timeout"},
    {"nccl-process-taken-down",
     "[rank1]:[E1121 ProcessGroupNCCL.cpp:801] Aborting process on rank 1 due to error - timeout "
     "watchdog detected operation error"},
    {"peer-lost",
     "[rank1]:[E1121 ProcessGroupNCCLUtils.cpp:300] nccl hit async error on rank 1: remote process "
     "exited or there was a network error"},
    {"nccl-no-gpu", "RuntimeError: nccl2 requires at least one CUDA device"},
    {"dtensor-cross-mesh",
     "RuntimeError: Cannot run aten.add.Tensor on inputs with different meshes: got "
     "DeviceMesh((dp=1), 'cpu', stride=((),)) and DeviceMesh((b=1), 'cpu', "
     "stride=((),))\n\nSharding "
     "propagation failed for aten.add.Tensor(Spec(f32[4, 4](S(0))))"},
    {"nccl-flight-recorder",
     "[rank1]:[E703 21:51:54.1 ProcessGroupNCCL.cpp:1922] [PG ID 0 PG GUID 0(default_pg) Rank 1] "
     "Observed flight recorder dump signal from another rank via TCPStore."},
    // areal-project/AReaL#644
    {"no-backend-for-device", "RuntimeError: No backend type associated with device type cpu"},
    {"nccl-needs-cuda", "RuntimeError: Tensors must be CUDA and dense"},
    {"store-lost",
     R"([rank3]:[W1028 12:00:01.1 TCPStore.cpp:106] [c10d] sendBytes failed on SocketImpl(fd=55, addr=[node2]:48370, remote=[node1]:50125): Broken pipe
[rank3]:[W1028 12:00:01.2 ProcessGroupNCCL.cpp:1662] [PG ID 0 PG GUID 0(default_pg) Rank 3] Failed to check the "should dump" flag on TCPStore, (maybe TCPStore server has shut down too early), with error: Broken pipe)"},
    {"port-taken",
     "[W socket.cpp:426] [c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - "
     "Address already in use)."},
    // pytorch/pytorch#69197
    {"rendezvous-connection",
     "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the "
     "C10d store has failed. See inner exception for details."},
    {"rendezvous-timeout", "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError"},
    {"rendezvous-closed", "torch.distributed.elastic.rendezvous.api.RendezvousClosedError"},
    {"worker-failed",
     "E1124 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) "
     "local_rank: 3 (pid: 14750) of binary: /usr/bin/python3"},
    {"launcher-signal",
     "torch.distributed.elastic.multiprocessing.api.SignalException: Process 2817 got signal: 1\n"},
    {"spawned-process-exited",
     "torch.multiprocessing.spawn.ProcessExitedException: process 2 terminated with signal "
     "SIGKILL"},
    {"no-launcher",
     "ValueError: Error initializing torch.distributed using env:// rendezvous: environment "
     "variable RANK expected, but not set"},
    {"no-process-group",
     "ValueError: Default process group has not been initialized, please make sure to call "
     "init_process_group."},
    {"invalid-device-ordinal", R"(  File "train.py", line 3, in main
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
RuntimeError: CUDA error: invalid device ordinal)"},
    // huggingface/peft#1702
    {"fsdp-requires-grad",
     "ValueError: Must flatten tensors with uniform `requires_grad` when `use_orig_params=False`"},
    // pytorch/pytorch#100945
    {"fsdp-requires-grad", "ValueError: `FlatParameter` requires uniform `requires_grad`"},
    // hiyouga/LlamaFactory#7993
    {"fsdp-dtype",
     "ValueError: Must flatten tensors with uniform dtype but got torch.bfloat16 and "
     "torch.float32"},
    {"fsdp-devices",
     "ValueError: Must flatten tensors on the same device but got both cpu and cuda:0"},
    {"fsdp-parameters-elsewhere",
     "RuntimeError: An FSDP-managed module unexpectedly has parameters on cpu. Make sure to move "
     "the module to cuda:0 before training."},
    {"fsdp-root",
     "AssertionError: Non-root FSDP instance's `_is_root` should not have been set yet or should "
     "have been set to `False`"},
    {"fsdp-root", R"(RuntimeError: FSDP state has already been lazily initialized for layers.0
FSDP requires running forward through the root module first)"},
    // huggingface/accelerate#1675
    {"fsdp-training-state",
     "AssertionError: Expects `BACKWARD_PRE` or `BACKWARD_POST` state but got "
     "HandleTrainingState.FORWARD"},
    // pytorch/pytorch#148756
    {"fsdp-training-state",
     "ValueError: expected to be in states [<TrainingState.FORWARD_BACKWARD: 2>] but current state "
     "is TrainingState.IDLE"},
    {"fsdp-order",
     "RuntimeError: Forward order differs across ranks: rank 0 is all-gathering parameters for "
     "['layers.0.weight'] while rank 1 is all-gathering parameters for ['layers.1.weight']"},
    // pytorch/pytorch#84175
    {"fsdp-order-changed",
     "UserWarning: Forward order differs from that of the first iteration on rank 0 -- collectives "
     "are unchecked and may give incorrect results or hang"},
    // axolotl-ai-cloud/axolotl#150
    {"sharded-storage-freed",
     R"(  File "/usr/lib/python3/dist-packages/torch/distributed/fsdp/_flat_param.py", line 1
RuntimeError: setStorage: sizes [4544, 4672], strides [1, 4544], storage offset 6507580544, and itemsize 2 requiring a
storage size of 13057620224 are out of bounds for storage of size 0)"},
    // huggingface/transformers#39186
    {"sharded-weight-used",
     R"(  File "torch/distributed/fsdp/fully_sharded_data_parallel.py", line 864, in forward
  File "torch/nn/functional.py", line 2551, in embedding
    return torch.embedding(weight, input, padding_idx, scale_grad_by_freq, sparse)
RuntimeError: 'weight' must be 2-D)"},
    {"sharded-weight-used", R"(  File "deepspeed/utils/nvtx.py", line 15, in wrapped_fn
RuntimeError: The size of tensor a (0) must match the size of tensor b (4096) at non-singleton dimension 0)"},
    // pytorch/pytorch#113203
    {"fsdp-inference-mode",
     "The `grad_fn` is needed to access the `AccumulateGrad` and register the post-backward hook"},
    {"fsdp-parameters-changed", R"(RuntimeError: Cannot writeback when the parameter shape changes
Expects torch.Size([1024]) but got torch.Size([16, 64]))"},
    {"fsdp-unshard-in-step",
     "AssertionError: Cannot manually unshard parameters during forward/backward"},
    {"fsdp-not-gathered",
     "AssertionError: Expects tensor to be unsharded with size torch.Size([64]) but got "
     "torch.Size([32])"},
    {"fsdp-scalar-parameter",
     "ValueError: fully_shard doesn't support scalar parameters. Change logit_scale to a 1D tensor "
     "with numel equal to 1."},
    {"fsdp2-dtype",
     "AssertionError: FSDP expects uniform original parameter dtype but got {torch.float32, "
     "torch.bfloat16}"},
    {"fsdp2-meta-device",
     R"(RuntimeError: FSDP parameters should be materialized from meta device before training, but the following were still on meta device: ['model.embed.weight']
For example, call module.to_empty(device) to materialize to device)"},
    {"fsdp2-cpu-offload",
     "RuntimeError: FSDP parameters should be materialized on CPU when enabling CPU offloading. "
     "For example, load a CPU state dict. Found following parameters on non-CPU device: [('w', "
     "device(type='cuda', index=0))]"},
    {"fsdp2-uneven-shard",
     "NotImplementedError: FSDP does not support uneven sharding on dim 1: torch.Size([8, 7]) "
     "(world size: 2)"},
    {"fsdp2-shared-parameter",
     "ValueError: Parameter 'lm_head.weight' is shared with a parameter already managed by another "
     "FSDP group. For shared/tied parameters, use fully_shard([module_a, module_b])"},
    {"fsdp-state-dict",
     "RuntimeError: FSDP assumes model.norm.weight is in the state_dict but the state_dict only "
     "has odict_keys([])."},
    {"fsdp-optimizer-state",
     "KeyError: 3 is not in the optimizer state. The FSDPParamInfo has the param keys ['a'] while "
     "the optimizer has the param keys []."},
    {"fsdp-no-accelerator",
     "RuntimeError: FSDP needs a non-CPU accelerator device, but no accelerator device is "
     "detected."},
    {"fsdp-mixed-settings",
     "ValueError: Expects one homogeneous value for _use_orig_params but got {False, True}"},
    // intel/torch-xpu-ops#1555
    {"dtensor-mixed",
     "RuntimeError: aten.add.Tensor: got mixed torch.Tensor and DTensor, need to convert all "
     "torch.Tensor to DTensor before calling distributed operators!"},
    // pytorch/pytorch#147724
    {"dtensor-no-strategy",
     "NotImplementedError: Operator aten.select.int does not have a sharding strategy registered."},
    {"dtensor-sharding-propagation",
     "RuntimeError: Sharding propagation failed for Op(op=aten.mm.default, args_schema=Spec(S(0) "
     "on (4, 4)))"},
    // NVIDIA-NeMo/Automodel#3301
    {"dtensor-cross-mesh",
     R"(ValueError: All operands in aten.stack.default must have the same mesh, but got DeviceMesh((MeshAxisName.EP=8), cuda, stride=(1,)) and DeviceMesh((MeshAxisName.DP_SHARD_CP=8), cuda, stride=(1,)).

Sharding propagation failed for Op(op=aten.stack.default))"},
    {"dtensor-cross-mesh",
     "RuntimeError: DTensor does not support cross-mesh operation on aten.mul.Tensor! Got meshes: "
     "DeviceMesh([0, 1]) DeviceMesh([0, 1, 2, 3]). Please make sure all the arguments have the "
     "same DeviceMesh."},
    {"mesh-too-big",
     "RuntimeError: Mesh should not be bigger than default world size 2, but found 4 ranks!"},
    {"mesh-dimension-names",
     "KeyError: \"Invalid mesh_dim_names ('cp',) specified. Valid mesh_dim_names are ['dp', "
     "'tp'].\""},
    {"mesh-hardware",
     "RuntimeError: DeviceMesh only support homogeneous hardware, but found 6 ranks and 4 cuda "
     "devices!"},
    {"dtensor-uneven-view",
     "RuntimeError: Cannot unflatten unevenly sharded tensor: output dimension 1 (size 6) is not "
     "evenly divisible by mesh dimension 0 (size 4). Please redistribute the tensor before this "
     "operation."},
    {"dtensor-uneven-view",
     "RuntimeError: ('Attempted to flatten sharded dimension 1, ', 'but only the leftmost dim of a "
     "Flatten can be sharded.')"},
    {"dtensor-partial",
     "RuntimeError: Any checkpointing related operations are not supported for DTensor with "
     "partial placements!"},
    {"dtensor-placements",
     "ValueError: `placements` must have the same length as `device_mesh.ndim`! Found placements "
     "length: 1, and device_mesh.ndim: 2."},
    {"tp-unsupported-module",
     "NotImplementedError: ColwiseParallel currently only support nn.Linear and nn.Embedding!"},
    {"tp-local-view", R"(  File "torch/distributed/tensor/parallel/style.py", line 1, in <lambda>
RuntimeError: shape '[2, 8, 32, 128]' is invalid for input of size 32768)"},
    {"pipeline-shape",
     "torch.distributed.pipelining._utils.PipeliningShapeError: Stage 1 forward input 0 has a "
     "shape mismatch: expected torch.Size([4, 16]) actual torch.Size([3, 16])"},
    {"pipeline-microbatches", "ValueError: Expecting 4 arg_mbs but got 3"},
    {"pipeline-gradients",
     "RuntimeError: step() requires gradients to be enabled for backward computation; it should "
     "not be used under torch.no_grad() context. Please call eval() instead."},
    // facebookresearch/dinov3#140
    {"dcp-missing-key",
     "[rank0]: RuntimeError: Missing key in checkpoint state_dict: model.backbone.cls_token."},
    {"dcp-size-mismatch",
     R"(torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([0, 1])
ValueError: Size mismatch between saved torch.Size([50304, 64]) and current: torch.Size([50257, 64]) for model.embed.weight)"},
    {"dcp-failed",
     "torch.distributed.checkpoint.api.CheckpointException: CheckpointException "
     "ranks:dict_keys([2, 3])"},
    {"dcp-no-metadata",
     "FileNotFoundError: [Errno 2] No such file or directory: '/out/step-1000/.metadata'"},
    {"dcp-save-plan", "ValueError: Failed to validate global plan"},
    {"dcp-state-dict",
     "RuntimeError: The option indicates that model state_dict is required to save, or load but "
     "optim state_dict is empty. {}"},
    // deepspeedai/DeepSpeed#3068
    {"zero3-parameter-status",
     "AssertionError: {'id': 786, 'status': 'INFLIGHT', 'numel': 38603520, 'ds_numel': 38603520, "
     "'shape': (50265, 768), 'ds_shape': (50265, 768), 'requires_grad': False, 'grad_shape': None, "
     "'persist': False, 'active_sub_modules': {3}}"},
    // OpenRLHF/OpenRLHF#312
    {"zero3-parameter-status",
     "RuntimeError: still have inflight params [{'id': 723, 'status': 'AVAILABLE', 'numel': "
     "4194304}]"},
    {"zero3-trace", R"(RuntimeError: tracing error at step 12:
module id: 7, training: True
expected the next 2 parameters in the parameter fetch queue to be ({'id': 'a', 'status': 'AVAILABLE'},))"},
    // deepspeedai/DeepSpeed#4533
    {"zero3-trace-invalidated",
     "Invalidate trace cache @ step 271: expected module 2, but got module 271"},
    // OpenSenseNova/piccolo-embedding#8
    {"zero-reduced-twice",
     "[default0]:AssertionError: The parameter 388 has already been reduced.             Gradient "
     "computed twice for this partition.             Multiple gradient reduction is currently not "
     "supported"},
    {"zero3-not-partitioned", "AttributeError: 'Parameter' object has no attribute 'ds_id'"},
    {"loss-scale-minimum",
     "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting "
     "run."},
    // QwenAudio/FunMusic#28
    {"unscale-fp16",
     R"(  File "torch/distributed/elastic/multiprocessing/errors/__init__.py", line 347, in wrapper
ValueError: Attempting to unscale FP16 gradients.)"},
    // OpenRLHF/OpenRLHF#346
    {"deepspeed-batch-size",
     "AssertionError: Check batch related parameters. train_batch_size is not equal to "
     "micro_batch_per_gpu * gradient_acc_step * world_size 256 != 2 * 18 * 7"},
    {"zero-unused-parameters", R"(AssertionError:
                        This assert indicates that your module has parameters that
                        were not used in producing loss.)"},
    {"zero-checkpoint-world-size",
     "deepspeed.runtime.zero.utils.ZeRORuntimeException: The checkpoint being loaded used a DP "
     "world size of 8 but the current world size is 4. Automatic adjustment of ZeRO's optimizer "
     "state partitioning"},
    {"zero3-still-active",
     "RuntimeError: Cannot free a ZeRO-3 parameter while it is still active in submodules. Release "
     "the submodules first"},
    // deepspeedai/DeepSpeed#6793
    {"zero-no-sync",
     "AssertionError: no_sync context manager is incompatible with gradient partitioning logic of "
     "ZeRO stage 3"},
    {"deepspeed-plain-backward",
     "RuntimeError: Loss scaling is required for this configuration, but backward() was called "
     "directly without scaling the loss."},
    // InternLM/xtuner#1329
    {"fsdp2-mesh",
     "AssertionError: FSDP requires the DP and TP mesh to have the same parent mesh but got:  DP's "
     "global mesh: DeviceMesh([0, 1]) TP's global mesh: DeviceMesh([0, 1])"},
    {"nccl-no-gpu", "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!"},
    // alibaba/Pai-Megatron-Patch#338
    {"sharded-size-mismatch",
     "INFO:megatron.core.optimizer:Setting up optimizer\nRuntimeError: Error(s) in loading "
     "state_dict "
     "for GPTModel:\n\tsize mismatch for embedding.word_embeddings.weight: copying a param with "
     "shape "
     "torch.Size([102400, 2048]) from checkpoint, the shape in current model is "
     "torch.Size([102416, "
     "2048])."},
    // huggingface/sentence-transformers#1215
    {"sharded-weight-used",
     "deepspeed\nsize mismatch for embeddings.weight: copying a param with shape torch.Size([0]) "
     "from "
     "checkpoint, the shape in current model is torch.Size([50265, 768])."},
    // vllm-project/vllm#3639
    {"megatron-group-missing", "AssertionError: tensor model parallel group is not initialized"},
    // NVIDIA/Megatron-LM#3132
    {"megatron-group-missing",
     "AssertionError: data parallel group with context parallel combined is not initialized"},
    {"megatron-world-size",
     "AssertionError: world size (6) is not divisible by total_model_size (total_model_size=4)"},
    {"megatron-batch-size",
     "AssertionError: global batch size (100) is not divisible by micro batch size (4) times data "
     "parallel size (8)"},
    {"megatron-not-divisible",
     R"(  File "/opt/Megatron-LM/megatron/core/utils.py", line 592, in ensure_divisibility
AssertionError: 25 is not divisible by 2)"},
    {"megatron-nan",
     "RuntimeError: Rank 23, node gpu4, device 7, iteration 2: Unexpected result nan "
     "(message='found NaN in local forward loss calculation')"},
    // NVIDIA/Megatron-LM#1150
    {"megatron-bucket-incomplete",
     "AssertionError: Communication call has not been issued for this bucket (3/21 params have "
     "grad available)"},
    {"megatron-checkpoint-shape",
     "megatron.core.dist_checkpointing.core.CheckpointingException: Global shape mismatch for "
     "loaded (torch.Size([50304, 64])) and expected ((50432, 64)) tensor for key "
     "embedding.word_embeddings.weight"},
    {"megatron-checkpoint-access",
     "megatron.core.dist_checkpointing.core.CheckpointingException: Invalid access pattern for "
     "ShardedTensor(key='decoder.layers.mlp.weight'): tensor([[2, 2]])"},
    {"megatron-checkpoint-keys",
     "CheckpointingException: Unexpected keys (not found in the checkpoint) encountered in the "
     "provided sharded state dict. Unexpected keys (for this rank): {'a._extra_state'}."},
    {"megatron-max-connections",
     "AssertionError: Using tensor model parallelism or context parallelism require setting the "
     "environment variable CUDA_DEVICE_MAX_CONNECTIONS to 1"},
};

std::vector<std::string> ids_in(const std::string& text) {
  std::vector<std::string> ids;
  for (const auto& explanation : explain_log(text).explanations) ids.push_back(explanation.text);
  return ids;
}

TEST(KnownTexts, EachIsFoundAlone) {
  for (const auto& sample : kSamples)
    EXPECT_THAT(ids_in(sample.text), ElementsAre(sample.id)) << sample.text;
}

// And on every rank of a job at once.
TEST(KnownTexts, EachIsFoundOnceForSeveralRanks) {
  for (const auto& sample : kSamples) {
    if (std::string_view(sample.text).find("[rank") != std::string_view::npos) continue;
    std::string log;
    for (const int rank : {0, 1}) {
      std::string text = "[rank" + std::to_string(rank) + "]: ";
      for (const char* letter = sample.text; *letter != 0; ++letter) {
        text += *letter;
        if (*letter == '\n') text += "[rank" + std::to_string(rank) + "]: ";
      }
      log += text + "\n";
    }
    EXPECT_THAT(ids_in(log), ElementsAre(sample.id)) << log;
  }
}

TEST(KnownTexts, EachNewOneHasASample) {
  std::set<std::string_view> sampled;
  for (const auto& sample : kSamples) sampled.insert(sample.id);
  for (const auto texts : {nccl_texts(), watchdog_texts(), process_group_texts(), launch_texts(),
                           fsdp_texts(), fully_shard_texts(), dtensor_texts(), pipelining_texts(),
                           checkpoint_texts(), deepspeed_texts(), megatron_texts()}) {
    for (const auto* known : texts) EXPECT_TRUE(sampled.contains(known->id)) << known->id;
  }
}

TEST(KnownTexts, AreWellFormed) {
  std::set<std::string_view> ids;
  std::map<std::string_view, std::string_view> phrases;
  for (const auto* known : known_texts()) {
    EXPECT_TRUE(ids.insert(known->id).second) << known->id << " is there twice";
    EXPECT_FALSE(known->says.empty()) << known->id;
    EXPECT_FALSE(known->causes.empty()) << known->id;
    for (const auto& phrase : known->phrases) {
      EXPECT_GE(phrase.words.size(), 4u) << known->id;
      EXPECT_EQ(phrase.words.find("  "), std::string_view::npos) << known->id;
      EXPECT_TRUE(phrases.emplace(phrase.words, known->id).second)
          << phrase.words << " belongs to " << phrases[phrase.words] << " and " << known->id;
    }
  }
  for (const auto* known : known_texts()) {
    for (const auto whole : known->part_of)
      EXPECT_TRUE(ids.contains(whole)) << known->id << " is part of no known text: " << whole;
  }
}

// docs/errors.md lists them, with what they mean.
TEST(KnownTexts, AreListedInTheDocumentation) {
  std::ifstream file(DDP_DOCTOR_RULE_PAGES "/../errors.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  for (const auto* known : known_texts()) {
    std::string line = "| `" + std::string(known->id) + "` | ";
    for (const char letter : known->says) line += letter == '|' ? "\\|" : std::string(1, letter);
    EXPECT_NE(page.find(line + " |\n"), std::string::npos) << line;
  }
}

// What a program may print that is not about distributed training, or has its own words for it.
TEST(KnownTexts, LeavesOthersAlone) {
  for (const char* text : {
           "RuntimeError: 'weight' must be 2-D",
           "RuntimeError: shape '[2, 3]' is invalid for input of size 5",
           "RuntimeError: The size of tensor a (0) must match the size of tensor b (3)",
           "AssertionError: 25 is not divisible by 2",
           "RuntimeError: setStorage: sizes [3], strides [1], storage offset 0, and itemsize 4 "
           "requiring a storage size of 12 are out of bounds for storage of size 0",
           "ValueError: Attempting to unscale FP16 gradients.",
           "RuntimeError: Inplace update to inference tensor outside InferenceMode is not allowed.",
           "RuntimeError: CUDA error: invalid device ordinal",
           "OSError: [Errno 98] Address already in use",
           "KeyError: 'status'",
           "the server got signal: 15",
           "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
           "RuntimeError: CUDA error: device-side assert triggered",
           "RuntimeError: Error(s) in loading state_dict for Net: Missing key(s) in state_dict: "
           "\"a.weight\"",
           "size mismatch for head.weight: copying a param with shape torch.Size([10, 4])",
           "FileNotFoundError: [Errno 2] No such file or directory: 'a.metadata.json'",
       }) {
    EXPECT_THAT(ids_in(text), IsEmpty()) << text;
  }
}

}  // namespace
}  // namespace ddp_doctor
