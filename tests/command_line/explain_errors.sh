# SPDX-License-Identifier: BSD-3-Clause
# explain -: a pasted error becomes a rule, its parameters, causes and the next command; in each wording that PyTorch has used.
. "$(dirname "$0")/lib.sh"
explain() { doctor "$1" explain - <<<"$2"; }
unfinished='RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that your module has parameters that were not used in producing loss.'
list='Parameter indices which did not receive grad for rank'

# Unused parameters: torch 1.2 to 1.8, then TORCH_DISTRIBUTED_DEBUG unset, INFO, DETAIL.
explain 0 "$unfinished You can enable unused parameter detection by (1) passing the keyword argument"
printed '^DDP201 unused-parameters: error, likely'; printed 'torch versions: 1.2 to 1.8'; printed 'no list of parameters'
explain 0 "$unfinished
$list 0: 4 5
 In addition, you can set the environment variable TORCH_DISTRIBUTED_DEBUG"
printed '^DDP201 .*; rank 0, from line 1'; printed '^    rank 0: parameter indices 4, 5$'; printed '^    ddp-doctor explain DDP201$'
for level in INFO DETAIL; do
  explain 0 "[rank1]: $unfinished
[rank1]: Parameters which did not receive grad for rank 1: c.bias, c.weight
[rank1]: $list 1: 4 5"
  printed '^    rank 1: parameter indices 4, 5; c.bias, c.weight$'
done
explain 0 "[rank0]: $unfinished
[rank1]: $unfinished
[rank1]: $list 1: 2 3
[rank0]: $list 0: 4 5"
printed '^DDP202 rank-dependent-graph: error, likely; ranks 0 and 1'

# static_graph, both directions.
explain 0 "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that your training graph has changed in this iteration, e.g., one parameter is used in first iteration, but then got unused in the second iteration. this is not compatible with static_graph set to True.
$list 0: 7"
printed '^DDP206 static-graph-violated: error, likely'; printed 'parameter index 7$'; not_printed DDP201
explain 0 'RuntimeError: Your training graph has changed in this iteration, e.g., one parameter is unused in first iteration, but then got used in the second iteration.'
printed '^DDP206 '; printed 'before optimizer.step'

# Marked ready twice.
explain 0 'RuntimeError: Expected to mark a variable ready only once. This error is caused by use of a module parameter outside the `forward` function.'
printed '^DDP205 '; printed '1.1 and 1.2'
explain 0 'RuntimeError: Expected to mark a variable ready only once. This error is caused by one of the following reasons: 1) ... or try to use _set_static_graph() as a workaround
Parameter at index 55 with name blocks.3.weight has been marked as ready twice.'
printed 'parameter index 55; blocks.3.weight'; printed '1.9 and later'

# Models that differ.
explain 0 'RuntimeError: DDP expects same model across all ranks, but Rank 0 has 382 params, while rank 1 has inconsistent 0 params.'
printed '^DDP306 model-mismatch: error, likely'; printed 'Check the launch'
explain 0 'RuntimeError: [1]: params[0] in this process with sizes [5, 4] appears not to match sizes of the same param in process 0.'
printed '^DDP306 '; printed 'rank 1: parameter index 0; sizes \[5, 4\]'

# Ranks that do not meet.
explain 0 "terminate called after throwing an instance of 'gloo::EnforceNotMet'
  what():  [enforce fail at ./gloo/transport/tcp/pair.cc:510] op.preamble.length <= op.nbytes. 40004 vs 4"
printed '^DDP502 '; printed 'bytes received 40004; bytes expected 4'
explain 0 'RuntimeError: [./gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]:29064'
printed '^DDP504 '; printed "other ranks' output is needed"
explain 0 '[rank1]:[E626 06:24:44.9 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=808, OpType=ALLREDUCE, NumelIn=98, NumelOut=98, Timeout(ms)=600000) ran for 600020 milliseconds before timing out.'
printed '^DDP501 stalled-rank: error, likely; rank 1'; printed 'collective ALLREDUCE; number 808; elements 98'
