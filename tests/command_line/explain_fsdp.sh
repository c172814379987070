# SPDX-License-Identifier: BSD-3-Clause
# explain -: errors of FSDP, in public issues.
. "$(dirname "$0")/lib.sh"

# ByteDance-Seed/Bagel#104: certain, since nothing else raises it.
doctor 0 explain - <<'LOG'
[rank5]: Traceback (most recent call last):
[rank5]:   File "/data/project/Bagel/train/pretrain_unified_navit.py", line 704, in <module>
[rank5]:     main()
[rank5]:   File "/opt/envs/bagel/lib/python3.10/site-packages/torch/distributed/fsdp/_flat_param.py", line 588, in _init_flat_param
[rank5]: ValueError: Must flatten tensors with uniform `requires_grad` when `use_orig_params=False`
LOG
printed '^fsdp-requires-grad \(no rule of its own\): error, certain; rank 5, from line 5'; printed 'use_orig_params=True'; printed '2.1 and later'

# hiyouga/LlamaFactory#7993, on two ranks.
doctor 0 explain - <<'LOG'
[rank0]: ValueError: Must flatten tensors with uniform dtype but got torch.bfloat16 and torch.float32
[rank1]: ValueError: Must flatten tensors with uniform dtype but got torch.bfloat16 and torch.float32
LOG
printed 'ranks 0 and 1: dtypes torch.bfloat16; and torch.float32'; printed 'it does not depend on the rank'

# huggingface/accelerate#1675, pytorch/pytorch#148756
doctor 0 explain - <<<'AssertionError: Expects `BACKWARD_PRE` or `BACKWARD_POST` state but got HandleTrainingState.FORWARD'
printed 'state HandleTrainingState.FORWARD'; printed 'use_reentrant=False'
doctor 0 explain - <<<'ValueError: expected to be in states [<TrainingState.FORWARD_BACKWARD: 2>] but current state is TrainingState.IDLE'
printed 'fsdp-training-state'; printed 'state TrainingState.IDLE'

# huggingface/transformers#39186: only in a log that is about sharding.
doctor 0 explain - <<'LOG'
  File "/x/lib/python3.11/site-packages/torch/distributed/fsdp/fully_sharded_data_parallel.py", line 864, in forward
  File "/x/lib/python3.11/site-packages/torch/nn/functional.py", line 2551, in embedding
RuntimeError: 'weight' must be 2-D
LOG
printed 'sharded-weight-used'; printed 'summon_full_params'
doctor 3 explain - <<<"RuntimeError: 'weight' must be 2-D"

# axolotl-ai-cloud/axolotl#150, a message broken by the terminal
doctor 0 explain - <<'LOG'
Using FSDP
RuntimeError: setStorage: sizes [4544, 4672], strides [1, 4544], storage offset 6507580544, and itemsize 2 requiring a
storage size of 13057620224 are out of bounds for storage of size 0
LOG
printed 'sharded-storage-freed'

doctor 0 explain - <<'LOG'
[rank0]: RuntimeError: Forward order differs across ranks: rank 0 is all-gathering parameters for ['a.weight'] while rank 1 is all-gathering parameters for ['b.weight']
LOG
printed '^DDP502 collective-mismatch: error, likely; rank 0'; printed "it gathers \['a.weight'\]"; printed 'DDP202'
doctor 0 explain - <<<"RuntimeError: FSDP parameters should be materialized from meta device before training, but the following were still on meta device: ['model.embed.weight']
For example, call module.to_empty(device) to materialize to device"
printed "on meta \['model.embed.weight'\]"; printed 'error, certain'
