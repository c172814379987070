# SPDX-License-Identifier: BSD-3-Clause
# explain -: errors of DeepSpeed, Megatron and torchrun, in public issues.
. "$(dirname "$0")/lib.sh"

# deepspeedai/DeepSpeed#3068
doctor 0 explain - <<'LOG'
AssertionError: {'id': 786, 'status': 'INFLIGHT', 'numel': 38603520, 'ds_numel': 38603520, 'shape':
(50265, 768), 'ds_shape': (50265, 768), 'requires_grad': False, 'grad_shape': None, 'persist': False,
'active_sub_modules': {3}}
LOG
printed 'status INFLIGHT; shape \(50265, 768\)'; printed 'set_z3_leaf_modules'

# OpenSenseNova/piccolo-embedding#8
doctor 0 explain - <<<'[default0]:AssertionError: The parameter 388 has already been reduced.             Gradient computed twice for this partition.             Multiple gradient reduction is currently not supported'
printed 'zero-reduced-twice'; printed 'parameter number 388'; printed 'DDP205'

# OpenRLHF/OpenRLHF#346
doctor 0 explain - <<<'AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 256 != 2 * 18 * 7'
printed 'sizes 256 != 2 \* 18 \* 7'

# ZeRO's words for unused parameters are not taken for DistributedDataParallel's.
doctor 0 explain - <<'LOG'
AssertionError:
                        This assert indicates that your module has parameters that
                        were not used in producing loss.
                        You can avoid this assert by
                        (1) enable ignore_unused_parameters option in zero_optimization config;
LOG
printed '^1 known text'; printed 'ignore_unused_parameters'; not_printed find_unused_parameters

# NVIDIA/Megatron-LM#3132, #1150
doctor 0 explain - <<<'AssertionError: data parallel group with context parallel combined is not initialized'
printed 'megatron-group-missing'
doctor 0 explain - <<<'[rank2]: AssertionError: Communication call has not been issued for this bucket (3/21 params have grad available)'
printed '^DDP201 unused-parameters: error, likely; rank 2'; printed 'parameters with a gradient 3/21'
doctor 0 explain - <<<'AssertionError: global batch size (100) is not divisible by micro batch size (4) times data parallel size (8)'
printed 'micro batch size 4; data parallel size 8'
doctor 0 explain - <<<"RuntimeError: Rank 23, node gpu4, device 7, iteration 2: Unexpected result nan (message='found NaN in local forward loss calculation')"
printed '^DDP402 nonfinite-gradient'
doctor 3 explain - <<<'AssertionError: 25 is not divisible by 2'

# pytorch/pytorch#107021
doctor 0 explain - <<'LOG'
[E socket.cpp:860] [c10d] The client socket has timed out after 60s while trying to connect to 192.0.0.1:1234
torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed. See inner exception for details.
LOG
printed 'rdzv_endpoint'

# The first to fail was killed; another rank lost it.
doctor 0 explain - <<'LOG'
[rank0]: RuntimeError: [/gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:7563
E1124 14:02:01.1 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) local_rank: 3 (pid: 14750) of binary: /usr/bin/python3
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
Root Cause (first observed failure):
[0]:
  rank      : 3 (local_rank: 3)
  exitcode  : -9 (pid: 14750)
  traceback : Signal 9 (SIGKILL) received by PID 14750
LOG
printed 'Look at rank 3 first'; printed 'out-of-memory'; printed 'exit code -9; signal 9 \(SIGKILL\)'; not_printed worker-failed
doctor 0 explain - <<<'torch.distributed.elastic.multiprocessing.api.SignalException: Process 2817 got signal: 1'
printed 'SIGHUP'; not_printed SIGTERM

# deepspeedai/DeepSpeed#6793: of the error and of what torchrun says after it, the error comes first.
doctor 0 explain - <<'LOG'
[rank0]:   File "/root/miniconda3/envs/llama/lib/python3.11/site-packages/deepspeed/runtime/engine.py", line 1997, in no_sync
[rank0]: AssertionError: no_sync context manager is incompatible with gradient partitioning logic of ZeRO stage 3
  0%|                                                  | 0/168 [00:00<?, ?it/s]
W1126 23:28:07.821000 402381 site-packages/torch/distributed/elastic/multiprocessing/api.py:897] Sending process 402434 closing signal SIGTERM
E1126 23:28:11.641000 402381 site-packages/torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 1 (pid: 402435) of binary: /root/miniconda3/envs/llama/bin/python
LOG
grep -E '^[A-Za-z].*from line' "$work/out" | head -n 1 | grep -q '^zero-no-sync .*rank 0, from line 2' || fail "the cause does not stand first"
printed 'ZeRO stage 3'; printed 'a consequence of the first error above, zero-no-sync'
