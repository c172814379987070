# SPDX-License-Identifier: BSD-3-Clause
# explain -: logs of NCCL's watchdogs, shortened from public issues: who is behind, who is elsewhere, who only lost a peer.
. "$(dirname "$0")/lib.sh"

# sgl-project/sglang#1693: of a timeout, and of what the watchdog says after it, the timeout is explained.
doctor 0 explain - <<'LOG'
[rank1]:[E1016 03:31:38.928019586 ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9141, OpType=_ALLGATHER_BASE, NumelIn=19008, NumelOut=152064, Timeout(ms)=600000) ran for 600071 milliseconds before timing out.
[rank4]:[E1016 03:31:38.928463388 ProcessGroupNCCL.cpp:607] [Rank 4] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9141, OpType=_ALLGATHER_BASE, NumelIn=19008, NumelOut=152064, Timeout(ms)=600000) ran for 600071 milliseconds before timing out.
[rank4]:[E1016 03:31:38.929220797 ProcessGroupNCCL.cpp:1664] [PG 3 Rank 4] Exception (either an error or timeout) detected by watchdog at work: 9141, last enqueued NCCL work: 9141, last completed NCCL work: 9140.
[rank4]:[E1016 03:31:38.929241154 ProcessGroupNCCL.cpp:621] [Rank 4] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.
[rank4]:[E1016 03:31:38.929246900 ProcessGroupNCCL.cpp:627] [Rank 4] To avoid data inconsistency, we are taking the entire process down.
LOG
printed '^1 known text in 5 lines'; printed '^DDP501 stalled-rank: error, likely; ranks 1 and 4'
printed 'Ranks 1 and 4 waited 600 s in _ALLGATHER_BASE number 9141'; printed 'FSDP and ZeRO-3 gather'
# Which ranks the group has is unknown.
printed 'look there first if they'; not_printed 'Look at rank.* first'

# NVIDIA/nccl#1409: one rank broadcasts while the others reduce.
doctor 0 explain - <<'LOG'
[rank0]:[E816 01:45:40.183009389 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=80078, OpType=BROADCAST, NumelIn=5056, NumelOut=5056, Timeout(ms)=600000) ran for 600026 milliseconds before timing out.
[rank0]:[E816 01:45:40.184373931 ProcessGroupNCCL.cpp:1664] [PG 0 (default_pg) Rank 0] Exception (either an error or timeout) detected by watchdog at work: 80078, last enqueued NCCL work: 80078, last completed NCCL work: 80077.
[rank1]:[E816 01:45:40.212150935 ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=80078, OpType=ALLREDUCE, NumelIn=2106881, NumelOut=2106881, Timeout(ms)=600000) ran for 600013 milliseconds before timing out.
[rank2]:[E816 01:45:40.212150935 ProcessGroupNCCL.cpp:607] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=80078, OpType=ALLREDUCE, NumelIn=2106881, NumelOut=2106881, Timeout(ms)=600000) ran for 600013 milliseconds before timing out.
LOG
printed '^DDP502 collective-mismatch: error, likely; ranks 0, 1 and 2'
printed 'Rank 0 is elsewhere in the program than the others'; printed 'Look at rank 0 first'

# The dump signal of a rank that had nothing to wait for.
doctor 0 explain - --format json <<'LOG'
[rank6]:[E703 21:51:54.112142364 ProcessGroupNCCL.cpp:1987] [PG ID 0 PG GUID 0(default_pg) Rank 6] Received a dump signal due to a collective timeout from  rank 7 and we will try our best to dump the debug info. Last enqueued NCCL work: 56115, last completed NCCL work: 56115.This is most likely caused by incorrect usages of collectives
[rank7]:[E703 21:51:54.012142364 ProcessGroupNCCL.cpp:632] [Rank 7] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=56116, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600026 milliseconds before timing out.
[rank7]:[E703 21:51:54.012142364 ProcessGroupNCCL.cpp:2271] [PG ID 0 PG GUID 0(default_pg) Rank 7]  failure detected by watchdog at work sequence id: 56116 PG status: last enqueued work: 56116, last completed work: 56115
LOG
"$python" - "$work/out" <<'PY' || fail "not the JSON expected"
import json, sys
(e,) = json.load(open(sys.argv[1]))["explanations"]
assert (e["text"], e["ranks"], e["suspects"]) == ("collective-timeout", [6, 7], [6]), e
assert any("Rank 6 never issued number 56116" in line for line in e["seen"]), e["seen"]
assert e["said"][0]["figures"]["signalled by rank"] == "7"
PY

# NVIDIA/Megatron-LM#661
doctor 0 explain - <<'LOG'
torch.distributed.DistBackendError: NCCL error in: /opt/pytorch/pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1727, invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.19.3
ncclInvalidUsage: This usually reflects invalid usage of NCCL library.
Last error:
Duplicate GPU detected : rank 3 and rank 0 both on CUDA device f000
    torch.distributed.barrier()
LOG
printed '^nccl-duplicate-gpu \(no rule of its own\): error'; printed 'ranks rank 3 and rank 0; CUDA device f000'; printed 'LOCAL_RANK'

# NVIDIA/nccl#1410, and a rank that only lost this one.
doctor 0 explain - <<'LOG'
[rank0]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3384, remote process exited or there was a network error, NCCL version 2.20.5
[rank0]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.
[rank7]: torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.20.5
[rank7]: ncclUnhandledCudaError: Call to CUDA function failed.
[rank7]: Last error:
[rank7]: Cuda failure 1 'invalid argument'
LOG
printed "NCCL version 2.20.5; CUDA error 1 'invalid argument'"; printed 'Rank 7 raised it; rank 0 only waited for that'
[ "$(grep -c '^DDP504 rank-crashed' "$work/out")" = 2 ] || fail "not the CUDA error and the lost connection"

# modelscope/ms-swift#7992: the heartbeat monitor alone.
doctor 0 explain - <<<"[rank4]:[E205 18:11:06.375750231 ProcessGroupNCCL.cpp:1870] [PG ID 12 PG GUID 99(EXPERT_MODEL_PARALLEL_GROUP) Rank 4] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives."
printed 'stuck for 480 seconds'; printed 'TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC'; printed 'destroy_process_group'

# A traceback that ends in the program's own error is none of these, nor is one of a library that is unknown here.
doctor 3 explain - <<'LOG'
[rank0]: Traceback (most recent call last):
[rank0]:   File "/home/me/train.py", line 52, in <module>
[rank0]:   File "/x/site-packages/torch/nn/functional.py", line 2551, in embedding
[rank0]: RuntimeError: 'weight' must be 2-D
LOG
said "does not mention distributed training: RuntimeError: 'weight' must be 2-D"
doctor 3 explain - <<'LOG'
  File "/x/site-packages/torch/distributed/tensor/_api.py", line 3, in f
RuntimeError: something that is new
LOG
said 'raised by a library of distributed training: RuntimeError: something that is new'
