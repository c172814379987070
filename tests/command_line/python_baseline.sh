# SPDX-License-Identifier: BSD-3-Clause
# A baseline: what was computed, kept in the repository; a commit that changes it is told from which step and in which parameter.
. "$(dirname "$0")/lib.sh"
need_torch
cd "$work" || exit 1
cat >train.py <<'PY'
import ctypes
import os
import torch
import torch.distributed as dist

change = os.environ.get("CHANGE", "")
dist.init_process_group("gloo")
torch.manual_seed(0 if change != "unseeded" else int.from_bytes(os.urandom(4), "little"))
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head, self.other = torch.nn.Linear(8, 8), torch.nn.Linear(8, 2), torch.nn.Linear(8, 2)
        if change == "model":
            self.more = torch.nn.Linear(2, 2)
    def forward(self, x, step):
        h = self.body(x).relu()
        y = self.head(h)
        if not (change == "graph" and step >= 3):
            y = y + self.other(h)
        return self.more(y) if change == "model" else y
model = torch.nn.parallel.DistributedDataParallel(Net(), find_unused_parameters=True)
torch.manual_seed(1 + dist.get_rank())
optimizer = torch.optim.SGD(model.parameters(), lr=0.101 if change == "rate" else 0.1)
for step in range(1, 6):
    x = torch.randn(4, 8)
    if change == "data" and step == 4 and dist.get_rank() == 1:
        x[0, 0] += 1e-3
    optimizer.zero_grad()
    model(x, step).square().mean().backward()
    optimizer.step()
if change == "abrupt":
    dist.barrier()
    ctypes.CDLL(None)._exit(0)
dist.destroy_process_group()
PY
doctor 2 check train.py --baseline numerics.json; complained 'make it with --update-baseline'
doctor 2 check train.py --update-baseline; complained 'needs --baseline FILE'
doctor 2 check train.py --tolerance measured; complained 'needs --baseline FILE'
doctor 0 check train.py --baseline numerics.json --update-baseline; said 'wrote the baseline .*numerics.json'
doctor 0 check train.py --baseline numerics.json
[ "$(wc -l <"$work/out")" = 1 ] || fail "$last: more than the verdict"

# The record of a rank that ends abruptly, past Python, is not closed, and is read once more for the comparison.
CHANGE=abrupt doctor 3 check train.py --baseline numerics.json

change() { export CHANGE=$1; doctor 1 check train.py --baseline numerics.json --format json --out "$work/$1"; }
change data
json 'first["rule"] == "DDP601" and first["first_step"] == 4 and {"body.weight"} <= {p["name"] for p in first["parameters"]} and first["severity"] == "warning"'
json 'first["evidence"]["of"] == "gradient" and "DDP602" not in found'
doctor 0 report "$work/data" --baseline numerics.json --fail-on error
doctor 0 report "$work/data" --baseline numerics.json --ignore DDP601
doctor 0 report "$work/data" --baseline numerics.json --suppress 'DDP601:*:* another machine'
doctor 0 report "$work/data"
change graph
json '{"DDP601", "DDP602"} <= set(found)'
json '[(f["first_step"], sorted(p["name"] for p in f["parameters"])) for f in r["findings"] if f["rule"] == "DDP602"] == [(3, ["other.bias", "other.weight"])]'
change model
json 'any(f["rule"] == "DDP602" and "more.weight" in f["message"] for f in r["findings"])'
unset CHANGE
doctor 2 check train.py --nproc-per-node 3 --baseline numerics.json; complained 'the baseline has 2 ranks and this run has 3'
echo '{}' >broken.json
doctor 2 check train.py --baseline broken.json; complained 'not a baseline of ddp-doctor'

# A sick run is no baseline.
cp numerics.json before.json
doctor 1 check "$here/../corpus/ddp101_wrapper_bypassed.py" --baseline numerics.json --update-baseline -- bug
said 'was not updated'; cmp -s numerics.json before.json || fail "$last: the baseline was written all the same"

# Another machine rounds differently: here, one whose processor has no vector instructions. A baseline of bits fails there; one that
# measured rounding holds, and a learning rate that is 1 % off does not.
doctor 2 check train.py --baseline numerics.json --tolerance measured; complained 'has bits only'
doctor 0 check train.py --baseline measured.json --update-baseline --tolerance measured; said 'wrote the baseline .*measured.json'
doctor 0 check train.py --baseline measured.json
other() { ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE OPENBLAS_CORETYPE=Prescott OMP_NUM_THREADS=2 doctor "$@"; }
other 1 check train.py --baseline measured.json --tolerance bits --format json; json '"DDP601" in found'
other 0 check train.py --baseline measured.json --format json --out "$work/other"
json 'any("as far as rounding explains" in note for note in r["runs"][0]["notes"])'
change_of() { export CHANGE=$1; other 1 check train.py --baseline measured.json --format json; unset CHANGE; }
change_of rate
json 'first["rule"] == "DDP601" and first["first_step"] == 1 and first["evidence"]["of"] == "weight" and first["evidence"]["distance"] > 10 * first["evidence"]["rounding"]'
change_of data
json 'first["rule"] == "DDP601" and first["first_step"] == 4 and first["evidence"]["of"] == "gradient"'
change_of graph
json '"DDP602" in found'
doctor 2 report "$work/other" --baseline again.json --update-baseline --tolerance measured; complained 'lack the second run'
CHANGE=unseeded doctor 2 check train.py --baseline again.json --update-baseline --tolerance measured; complained 'seed the program'
[ ! -e again.json ] || fail "$last: a baseline of an unseeded program was written"
sed '/"steps"/q' measured.json >cut.json
doctor 2 check train.py --baseline cut.json; complained 'not a baseline of ddp-doctor'
