# SPDX-License-Identifier: BSD-3-Clause
# --fix and compare run a program again, and it neither finds nor loses anything in its folder.
. "$(dirname "$0")/lib.sh"
need_torch
mkdir "$work/project" && cd "$work/project" || exit 1
cp "$here/resumes.py" .
echo "from an earlier run" >log.txt

# A program that resumes from its checkpoint, which it reaches by an absolute path.
doctor 1 run --fix --repeats 0 --format json resumes.py -- "$PWD"
json 'first["rule"] == "DDP101" and first["proof"]["cured"] and "model(x)" in first["change"]["after"]'
json '[len(run["steps_table"]) for run in r["runs"]] == [6, 6, 6]'
json 'any("wrote 2 files, e.g. checkpoint.pt" in note for note in r["runs"][0]["notes"])'
said 'run 1, resumes.py as-is: DDP101 wrapper-bypassed \('
said 'run 2, resumes.py ddp: clean \('
[ "$(cat log.txt)" = "from an earlier run
trained from 0" ] || fail "log.txt is not of one run"
[ -s checkpoint.pt ] || fail "the first run's checkpoint is gone"
cmp -s resumes.py "$here/resumes.py" || fail "the program was changed"

# In place, the second run finds what the first one left, and proves nothing.
rm checkpoint.pt
doctor 1 run --fix --repeats 0 --in-place --format json resumes.py
json 'not first["proof"]["cured"] and first["change"]["after"] == ""'

# It trains fewer steps than the first run had: no proof either.
rm checkpoint.pt
doctor 1 run --fix --repeats 0 --in-place --format json resumes.py -- . 2
json '"it has only 4 examined steps, and the first run had 6" in first["proof"]["text"] and not first["proof"]["cured"]'

# The runs that are compared find the folder as it was, and none sees what another wrote.
rm checkpoint.pt
echo "from an earlier run" >log.txt
doctor 1 compare --repeats 0 --format json resumes.py @ddp @allreduce-flat
json '[len(run["steps_table"]) for run in r["runs"]] == [6, 6, 6] and [run["verdict"] for run in r["runs"]] == ["sick", "healthy", "healthy"]'
said 'run 2, resumes.py ddp: clean \('
[ "$(cat log.txt)" = "from an earlier run
trained from 0" ] || fail "log.txt is not of the first run alone: $(cat log.txt)"

# Without a run that tried it, a change is words.
rm checkpoint.pt
doctor 1 run --fix --fix-budget 0.001 resumes.py
printed '--fix-budget \(0.001 s\) was used up'
printed 'call the wrapper here'; not_printed '^    \+ '
doctor 2 run --fix --fix-budget soon resumes.py
complained 'give seconds \(600\), or a multiple'

# Where no view is possible, nothing is run at all, unless that is asked for.
rm -f checkpoint.pt log.txt
project=$PWD
[ ! -w / ] || (cd / && doctor 2 run --fix --repeats 0 "$project/resumes.py" -- "$project" && complained 'cannot be isolated from / \(/ is not a folder of its own\)' && complained 'in-place') || exit 1
[ ! -e checkpoint.pt ] && [ ! -e log.txt ] || fail "the program was run"

# A change that was tried and did not help is words, with what came of it.
cat >two_ways.py <<'PROGRAM'
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(0)
ddp = DDP(torch.nn.Linear(8, 4))
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for step in range(8):
    optimizer.zero_grad()
    if step % 2 == 0:
        outputs = ddp.module(torch.randn(4, 8))
    else:
        outputs = ddp.module(torch.randn(4, 8) * 2)
    outputs.square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
PROGRAM
doctor 1 run --fix --repeats 0 two_ways.py
printed 'did not help'; not_printed '^    \+ '

# A run that is under way when the time is over proves nothing, neither way.
cat >slow_again.py <<PROGRAM
import os, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

mark = "$work/ran-" + os.environ["RANK"]
if os.path.exists(mark):
    time.sleep(600)
open(mark, "w").close()
dist.init_process_group("gloo")
torch.manual_seed(0)
ddp = DDP(torch.nn.Linear(8, 4))
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for step in range(6):
    optimizer.zero_grad()
    ddp.module(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
PROGRAM
doctor 1 run --fix --repeats 0 --fix-budget 5 slow_again.py
printed 'Tested: whether ddp fixes it is not known: --fix-budget \(5 s\) ended this run'
not_printed 'does not fix it'; not_printed '^    \+ '
