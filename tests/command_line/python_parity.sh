# SPDX-License-Identifier: BSD-3-Clause
# ddp-doctor parity: the ranks against one process that is fed their samples; when nothing can be compared it says why.
. "$(dirname "$0")/lib.sh"
need_torch
mkdir "$work/project" && cd "$work/project" || exit 1
export OMP_NUM_THREADS=1
cat >train.py <<'PY'
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

what = sys.argv[1:]
dist.init_process_group("gloo")
ranks = dist.get_world_size()
if "fails-alone" in what and ranks == 1 and "--alone" not in what:
    raise ValueError("one process is not enough")
torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 6), torch.randint(0, 3, (64,)))
width = 90000 if "wide" in what else 8
layers = [torch.nn.Linear(6, width), torch.nn.Tanh(), torch.nn.Linear(width, 3)]
if "norm" in what:
    layers.insert(1, torch.nn.BatchNorm1d(width))
net = torch.nn.Sequential(*layers)
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
steps = 0
for x, y in loader:
    loss = F.cross_entropy((net if "bypassed" in what else model)(x), y)
    optimizer.zero_grad()
    (loss * ranks if "scaled" in what else loss).backward()
    optimizer.step()
    steps += 1
    if "short" in what and steps == 2:
        break
if "writes" in what:
    with open(f"log-of-{ranks}.txt", "a") as log:
        log.write("trained\n")
dist.destroy_process_group()
PY

# Healthy, and a bug that no comparison between ranks can see.
doctor 0 run -q train.py -- scaled
doctor 0 parity train.py
printed '^Verdict: healthy: gradients of 2 ranks are those of one process: 4 of 4 parameters within rounding in 3 steps \(largest difference [0-9.e-]+; rounding alone [0-9.e-]+\)$'
printed '^Gradients of 2 ranks against one process on the same samples$'
printed '^changed in both runs: dropout, stochastic depth, torch.compile and TF32 are off'
doctor 1 parity train.py --out run --report r.json --report r.html --report r.md --report r.xml --report r.sarif -- scaled
printed '^DDP701 parity-scale: error, certain; ranks 0 and 1, from step 1$'; printed 'are 2.0000 times those that one process'
for format in json:r.json html:r.html junit:r.xml sarif:r.sarif; do
  "$python" "$here/valid.py" ${format%:*} ${format#*:} 2>"$work/err" || fail "$last: no valid ${format%:*}"
done
grep -q 'against one process' r.html && grep -q 'against one process' r.md || fail "$last: the compared steps are not in HTML and Markdown"
doctor 1 parity --nproc-per-node 3 --steps 2 train.py --format json -- scaled
json 'first["rule"] == "DDP701" and abs(first["evidence"]["k"] - 3) < 1e-3 and [step["step"] for step in r["parity"]["steps"]][:2] == [1, 2]'

# Two programs, each against one process.
doctor 1 compare train.py@one-process "train.py scaled@one-process" --out both --report both.html
printed '^Verdict: one-process: healthy; scaled@one-process: sick$'
printed '^scaled@one-process: Gradients of 2 ranks against one process'; printed '^DDP701 parity-scale'
doctor 1 report both --format json
json '[run["verdict"] for run in r["runs"]] == ["healthy", "sick"] and r["runs"][1]["parity"]["steps"][0]["equal"] == 0 and r["equalities"] == []'
doctor 0 compare train.py @one-process --format json
json 'r["equalities"] == [] and "parity" not in r and r["runs"][1]["cost"] is None and r["runs"][1]["parity"]["inconclusive"] is None'
doctor 2 compare train.py@ddp+one-process train.py; complained 'one-process is not joined with other strategies'
doctor 2 compare train.py "torchrun train.py@one-process"; complained 'name the program, without a launcher: train.py@one-process'

# A kept folder, judged again, in another way and another format; and its JSON.
doctor 1 report run; printed '^DDP701 parity-scale'
doctor 1 report run --format json; json 'first["rule"] == "DDP701" and r["parity"]["inconclusive"] is None and len(r["parity"]["steps"]) >= 3'
doctor 0 report run --ignore parity-scale -q; printed '^Verdict: healthy'
doctor 0 report run --fail-on never -q; printed '^Verdict: sick: DDP701'
doctor 1 report r.json; printed '^Verdict: sick: DDP701 parity-scale$'
echo '{' >run/parity/figures.json
doctor 2 report run; complained 'figures.json: cannot be read .*run ddp-doctor parity again'

# What may be on purpose.
doctor 1 parity train.py -- norm; printed '^DDP704 parity-forward: warning, likely'; printed 'the outputs of 1 \(BatchNorm1d\) are not those of one process'
doctor 0 parity --ignore parity-forward --ignore DDP405 train.py -- norm
doctor 0 parity --fail-on error train.py -- norm

# A program with fewer steps than there is to compute is started again.
doctor 0 parity train.py -- short; printed '4 of 4 parameters within rounding in 2 steps'

# What the one process writes is discarded.
doctor 0 parity train.py -- writes
[ ! -e log-of-1.txt ] || fail "$last: the one process wrote its file here"

# What it needs to run alone.
doctor 3 parity train.py -- fails-alone
printed '^Verdict: inconclusive: cannot be compared with one process: as one process the program fails: ValueError: one process is not enough; give it what it needs with --reference-args$'
doctor 0 parity train.py --reference-args "--note 'two words' --alone" -- fails-alone
doctor 0 parity train.py --inconclusive pass -q -- fails-alone; printed '^Verdict: inconclusive'

# What the ranks' run alone shows comes first.
doctor 1 parity train.py -- bypassed
printed '^Verdict: sick: DDP101 wrapper-bypassed; not compared with one process$'; printed "^not compared with one process: the ranks' own run has errors; fix these first"
not_printed 'against one process on'

# Disk.
doctor 3 parity --budget 1 train.py -- wide
printed 'cannot be compared with one process: the batches, gradients and weights of one step take 7 MiB; allow more with --budget$'
doctor 0 parity --budget 7 train.py -- wide; printed 'within rounding in 1 step '
doctor 2 parity --budget 0 train.py; complained 'budget'

# Data of its own, of which nothing passes by: not a guess.
cat >own.py <<'PY'
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(6, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
generator = torch.Generator().manual_seed(dist.get_rank())
for step in range(8):
    loss = (model(torch.randn(8, 6, generator=generator)) - torch.randn(8, 3, generator=generator)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
PY
doctor 3 parity own.py; printed '^Verdict: inconclusive: cannot be compared with one process: '

# Nothing to compare at all.
echo 'print("no torch here")' >idle.py
doctor 3 parity idle.py; printed '^Verdict: inconclusive: '

# Mistakes: each is answered with what to do.
doctor 2 parity; complained 'parity needs a program: ddp-doctor parity train.py'
doctor 2 parity nowhere.py; complained 'nowhere.py: no such file; check the path'
doctor 2 parity --nproc-per-node 1 train.py; complained 'give --nproc-per-node 2 or more'
doctor 2 parity -- torchrun --nproc_per_node 2 train.py --lr 1; complained 'without a launcher: ddp-doctor parity --nproc-per-node 2 train.py -- --lr 1$'
doctor 2 parity -- torchrun --nproc_per_node 2 -m pack.train --lr 1
complained 'run_module\("pack.train", run_name="__main__", alter_sys=True\)$'; complained 'ddp-doctor parity --nproc-per-node 2 run_module.py -- --lr 1$'
doctor 2 parity -- ./start.sh; complained 'without a launcher: ddp-doctor parity --nproc-per-node 2 train.py$'
doctor 2 parity train.py --steps 0; complained 'steps'
