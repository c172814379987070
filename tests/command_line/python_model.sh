# SPDX-License-Identifier: BSD-3-Clause
# Which parameters, which modules: the parameter indices of a pasted error, looked up in a program, and the smallest set of modules that explains it.
. "$(dirname "$0")/lib.sh"
need_torch
deadline=300
corpus=$here/../corpus
cat >"$work/error" <<'TXT'
[rank0]: RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that your module has parameters that were not used in producing loss. You can enable unused parameter detection by passing the keyword argument `find_unused_parameters=True` to `torch.nn.parallel.DistributedDataParallel`, and by
[rank0]: making sure all `forward` function outputs participate in calculating loss.
[rank0]: Parameter indices which did not receive grad for rank 0: 6 7 99
TXT
explain() {
  last="ddp-doctor explain $*"
  timeout $deadline "$DDP_DOCTOR" explain "$@" <"$work/error" >"$work/out" 2>"$work/err" || fail "$last: exit code $?"
  nothing_left
}
explain - --program "$corpus/ddp201_unused_parameters_3.py" -- bug
printed '^  index 6: confidence.weight, float32 \[4, 8\], of confidence; unused on ranks 0 and 1 in [0-9]+ of [0-9]+ steps?$'
printed '^  index 7: confidence.bias, float32 \[4\]'
printed '^  index 99: there is no such parameter: the wrapper has 8'
printed 'The program that was run shows DDP201 unused-parameters, on ranks 0 and 1'
explain - --program "$corpus/ddp202_rank_dependent_graph.py" -- bug
printed '^DDP202 rank-dependent-graph'; not_printed '^DDP201'; not_printed 'DDP201 or'
explain - --program "$corpus/ddp201_unused_parameters_3.py" --format json -- fixed
"$python" - "$work/out" <<'PY' || fail "$last: not the parameters"
import json, sys
found = {p["index"]: p for p in json.load(open(sys.argv[1]))["mentioned"]["parameters"]}
assert found[6]["name"] == "confidence.weight" and found[6]["shape"] == [4, 8] and found[6]["unused_in"] == 0 and not found[99]["found"], found
PY
"$DDP_DOCTOR" explain - --program nowhere.py <"$work/error" >"$work/out" 2>"$work/err"
[ $? = 2 ] && complained 'nowhere.py'

doctor 0 bisect --model "$corpus/ddp201_unused_parameters_3.py" -- bug
printed '^  confidence \(2 parameters\): ranks 0 and 1, in [0-9]+ of [0-9]+ steps?, first in step 1$'
printed '^  confidence: completes, nothing is unused$'
printed '^Verdict: confidence explains the unused parameters'
doctor 0 bisect --model "$corpus/ddp201_unused_parameters_3.py" -- fixed
printed '^Verdict: no parameter is unused$'

# Two modules: each is needed, and a third that is used is not named; on one rank only, in some steps only.
cat >"$work/two.py" <<'PY'
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
torch.manual_seed(0)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
        self.heads = torch.nn.ModuleDict({name: torch.nn.Linear(4, 1) for name in "abc"})
    def forward(self, x, step):
        h = self.body(x)
        y = self.heads["a"](h)
        if not (dist.get_rank() == 1 and step >= 3):
            y = y + self.heads["c"](h)
        return y
model = torch.nn.parallel.DistributedDataParallel(Net(), find_unused_parameters=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for step in range(1, 5):
    optimizer.zero_grad()
    model(torch.randn(2, 4), step).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
PY
doctor 0 bisect --model "$work/two.py" --format json
"$python" - "$work/out" <<'PY' || fail "$last: not the modules"
import json, sys
r = json.load(open(sys.argv[1]))
assert sorted(r["smallest"]) == ["heads.b", "heads.c"], r
assert [trial["clean"] for trial in r["trials"]] == [True, False, False], r["trials"]
assert any("heads.c (2 parameters): rank 1, in 2 of 4 steps, first in step 3" == line for line in r["observed"]), r["observed"]
PY
