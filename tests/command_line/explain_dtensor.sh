# SPDX-License-Identifier: BSD-3-Clause
# explain -: errors of DTensor, tensor parallelism, pipelining and distributed checkpoints, in public issues.
. "$(dirname "$0")/lib.sh"

# meta-pytorch/torchtune#2856, and a rank that lost the one that raised it.
doctor 0 explain - <<'LOG'
[rank0]: RuntimeError: [/gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:7563
[rank1]:   File "/home/ubuntu/miniconda3/envs/py310/lib/python3.10/site-packages/torch/distributed/tensor/_dispatch.py", line 452, in _try_replicate_spec_for_scalar_tensor
[rank1]: RuntimeError: aten.mm.default: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before calling distributed operators!
LOG
printed '^dtensor-mixed \(no rule of its own\): error, likely; rank 1, from line 3'; printed 'operator aten.mm.default'
printed 'Rank 1 raised it; rank 0 only waited for that'; printed 'a consequence of the first error above, dtensor-mixed'

# facebookresearch/optimizers#79: torchrun's summary has the error in its traceback.
doctor 0 explain - <<'LOG'
Root Cause (first observed failure):
[0]:
  time      : 2025-01-10_16:00:57
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 82250)
  traceback : Traceback (most recent call last):
    File "/home/me/optimizers/distributed_shampoo/examples/trainer_utils.py", line 609, in train_model
      optimizer.step()
  RuntimeError: aten._foreach_add_.List: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor
LOG
printed 'operator aten._foreach_add_.List'; printed '^DDP504 rank-crashed'

# pytorch/pytorch#147724, NVIDIA-NeMo/Automodel#3301
doctor 0 explain - <<<'NotImplementedError: Operator aten.select.int does not have a sharding strategy registered.'
printed 'operator aten.select.int'; printed 'register_sharding'
doctor 0 explain - <<'LOG'
ValueError: All operands in aten.stack.default must have the same mesh, but got DeviceMesh((MeshAxisName.EP=8), cuda, stride=(1,)) and
DeviceMesh((MeshAxisName.DP_SHARD_CP=8), cuda, stride=(1,)).
LOG
printed 'dtensor-cross-mesh'; printed 'operator aten.stack.default'; printed 'clip_grad_norm_'
doctor 0 explain - <<<'RuntimeError: Mesh should not be bigger than default world size 2, but found 4 ranks!'
printed 'world size 2; ranks in the mesh 4'
doctor 0 explain - <<<'  File "torch/distributed/tensor/parallel/style.py", line 1
RuntimeError: shape '"'[2, 8, 32, 128]'"' is invalid for input of size 32768'
printed 'tp-local-view'; printed 'size 32768'
doctor 3 explain - <<<"RuntimeError: shape '[1]' is invalid for input of size 2"

# Pipelining
doctor 0 explain - <<<'torch.distributed.pipelining._utils.PipeliningShapeError: Stage 1 forward input 0 has a shape mismatch: expected torch.Size([4, 16]) actual torch.Size([3, 16])'
printed 'tensor Stage 1 forward input 0'; printed 'expected torch.Size\(\[4, 16\]\)'; printed 'drop_last=True'

# facebookresearch/dinov3#140; JinjieNi/dlms-are-super-data-learners#4 has CheckpointException around it.
doctor 0 explain - <<'LOG'
[rank3]: torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([0, 1, 2, 3])
[rank3]: Traceback (most recent call last): (RANK 2)
[rank3]:   File "/usr/local/lib/python3.12/dist-packages/torch/distributed/checkpoint/default_planner.py", line 233, in create_local_plan
[rank3]: RuntimeError: Missing key in checkpoint state_dict: model.backbone.cls_token.
LOG
printed '^1 known text'; printed 'rank 3: model.backbone.cls_token$'; printed 'allow_partial_load'
