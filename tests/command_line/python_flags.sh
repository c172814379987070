# SPDX-License-Identifier: BSD-3-Clause
# Flags that have no meaning for this kind of program are refused, with what to do; in the environment they are defaults
# for the programs that they concern.
. "$(dirname "$0")/lib.sh"
need_torch
: >"$work/train.py"
for flag in "--lr 1" "--optimizer adam" "--input float32[1]" "--strategies ddp" "--accumulate 2" "--seed 1"; do
  doctor 2 run "$work/train.py" $flag
  case $flag in
    --strategies*) complained "--strategies is only for TorchScript programs; .*ddp-doctor compare .*train.py @ddp-find-unused" ;;
    *) complained "${flag% *} is only for TorchScript programs; put the program's own arguments after --: ddp-doctor run .*train.py -- ${flag% *} " ;;
  esac
  doctor 2 run $flag -- true; complained "${flag% *} is only for TorchScript programs"
done
for flag in "--master-port 29500" "--python python3"; do
  doctor 2 run $flag -- true; complained "${flag% *} is only for ranks that ddp-doctor starts"
done
DDP_DOCTOR_LR=1 DDP_DOCTOR_NPROC_PER_NODE=3 DDP_DOCTOR_MASTER_PORT=1 doctor 3 run -- true

doctor 2 run "$work/train.py" --epochs 3; complained "unknown option --epochs; put the program's own arguments after --: ddp-doctor run .*train.py -- --epochs 3"
doctor 2 run -m package.train; complained 'ddp-doctor run --nproc-per-node 2 -- python -m package.train'
doctor 2 run env train.py; complained 'env is a command: put -- before it: ddp-doctor run -- env train.py'
doctor 2 run -- "$PYTHON_TORCH" -c 'import torch.distributed as dist; dist.init_process_group("gloo")'
complained 'starts no ranks.*environment variable [A-Z_]* expected.*ddp-doctor run --nproc-per-node 2 -- '
doctor 2 run --epochs; complained 'unknown option --epochs'
doctor 2 run "$work/missing.py"; complained 'missing.py: no such file'
printf '#!/bin/sh\n' >"$work/trainer"
doctor 2 run "$work/trainer"; complained 'trainer: is an executable; put it after --: ddp-doctor run -- '
(cd "$work" && doctor 2 run trainer && complained 'ddp-doctor run -- ./trainer') || exit 1
printf 'PK\3\4' >"$work/script.pt"
doctor 2 run "$work/script.pt" -- --lr 1; complained 'takes no arguments'
doctor 2 run "$work/script.pt" --warmup 3; complained '--warmup is only for programs in Python'
doctor 0 run --help; printed '^TorchScript programs only:'; printed '^Programs in Python and commands only:'

# This installation may lack its Python side.
mkdir -p "$work/empty"
DDP_DOCTOR_HOME=$work/empty doctor 2 run "$work/train.py"; complained 'sitecustomize.py is missing.*install it again'
