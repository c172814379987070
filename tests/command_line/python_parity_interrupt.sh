# SPDX-License-Identifier: BSD-3-Clause
# Ctrl-C in the ranks' run or in that of the one process: a report of what was seen, exit 130, and nothing left behind. In a job of another launcher: refused.
. "$(dirname "$0")/lib.sh"
need_torch
export OMP_NUM_THREADS=1
cat >"$work/train.py" <<'PY'
import sys
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
ranks = dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(6, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(20000, 6))
for step, (x,) in enumerate(DataLoader(data, batch_size=4, sampler=DistributedSampler(data))):
    loss = model(x).square().mean() * (ranks if sys.argv[2:] == ["scaled"] else 1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step > 0 and sys.argv[1] == ("ranks" if ranks > 1 else "one"):
        open(f"{sys.argv[1]}-slow", "w").close()
        time.sleep(100)
dist.destroy_process_group()
PY
# interrupted SIGNAL WHERE ARGS...: in whose second step.
interrupted() {
  local signal=$1 where=$2 got
  shift 2
  rm -rf "$work/$where-slow" "$work/run"
  last="ddp-doctor parity train.py -- $where $* (SIG$signal)"
  (cd "$work" && exec "$DDP_DOCTOR" parity train.py --out run --format json -- "$where" "$@") >"$work/out" 2>"$work/err" &
  doctor_pid=$!
  for _ in $(seq 600); do
    if [ $where = ranks ]; then
      [ -e "$work/ranks-slow" ] && break
    else
      # What the one process writes is not here.
      [ -n "$(ls "$work"/run/parity/played 2>/dev/null)" ] && break
    fi
    sleep 0.1
  done
  sleep 0.5
  kill -$signal $doctor_pid
  wait $doctor_pid
  got=$?
  [ $got = 130 ] || fail "$last: exit code $got, not 130"
  json 'r["verdict"] == "inconclusive" and r["findings"] == []'
  for _ in $(seq 50); do [ -z "$(alive run)" ] && break; sleep 0.1; done
  nothing_left
}
interrupted INT ranks
json 'r["runs"][0]["exit"]["ending"] == "interrupted"'
interrupted INT one
interrupted TERM one scaled
doctor 3 report "$work/run"; printed '^Verdict: inconclusive: cannot be compared with one process: interrupted before all gradients were compared$'
[ ! -e "$work/one-slow" ] || fail "$last: the one process wrote its file here"

export RANK=1 LOCAL_RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29517
doctor 2 parity "$work/train.py" -- none
complained 'this is rank 1 of 2, and parity starts the ranks and the one process itself, without a launcher: ddp-doctor parity --nproc-per-node 2 .*train.py$'
TORCHELASTIC_RUN_ID=none doctor 2 parity --nproc-per-node 2 "$work/train.py" -- none; complained 'this is rank 1 of 2'
doctor 0 parity --nproc-per-node 2 "$work/train.py" -- none # a machine whose environment is one of a job
