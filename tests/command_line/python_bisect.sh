# SPDX-License-Identifier: BSD-3-Clause
# Forty commits: one bypasses the wrapper, a later one leaves a head unused, three in between do not start.
. "$(dirname "$0")/lib.sh"
need_torch
deadline=900
export GIT_AUTHOR_NAME=Somebody GIT_AUTHOR_EMAIL=somebody@example.org GIT_COMMITTER_NAME=Somebody GIT_COMMITTER_EMAIL=somebody@example.org
repository=$work/repository
git init -q "$repository" && mkdir "$repository/src" && cd "$repository/src" || exit 1
echo '__pycache__/' >../.gitignore
write() {  # write FORWARD HEAD FIRST-LINE
  cat >train.py <<PY
$3
import torch
import torch.distributed as dist
from model import Net

dist.init_process_group("gloo")
torch.manual_seed(0)
net = torch.nn.parallel.DistributedDataParallel(Net(), find_unused_parameters=True)
torch.manual_seed(1 + dist.get_rank())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    loss = sum(part.square().mean() for part in $1(torch.randn(4, 8)))
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
PY
  cat >model.py <<PY
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.a, self.b = torch.nn.Linear(8, 8), torch.nn.Linear(8, 2), torch.nn.Linear(8, 2)

    def forward(self, x):
        h = self.body(x).relu()
        return [self.a(h)$2]
PY
}
for commit in $(seq 40); do
  forward=net head=', self.b(h)' line=''
  [ "$commit" -ge 17 ] && forward=net.module
  [ "$commit" -ge 31 ] && head=''
  case $commit in 19 | 20 | 21) line='import nowhere' ;; esac
  write "$forward" "$head" "$line"
  echo "$commit" >../CHANGES
  git add -A .. && git commit -q -m "Change $commit" && git tag "change-$commit"
done
before=$(git status --porcelain; git rev-parse HEAD; git branch)

found() {  # found RULE FIRST
  doctor 0 bisect --good change-1 --bad change-40 --select "$1" --format json -- train.py
  "$python" - "$work/out" "$1" "$(git rev-parse "change-$2")" "$(git rev-parse "change-$(($2 - 1))")" <<'PY' || fail "$last: not what was expected"
import json, math, sys
r = json.load(open(sys.argv[1]))
rule, first, parent = sys.argv[2:]
judged = [entry for entry in r["examined"] if entry["outcome"] != "skipped"]
skipped = [entry["title"] for entry in r["examined"] if entry["outcome"] == "skipped"]
print(len(judged), "examined,", skipped, "skipped")
assert r["first_bad"] == first and r["parent"] == parent and r["conclusive"] and r["commits"] == 40, r["first_bad"]
assert len(judged) <= math.ceil(math.log2(40)) + 1, len(judged)
assert set(skipped) <= {"Change 19", "Change 20", "Change 21"}, skipped
assert {finding["rule"] for finding in r["came"]} == {rule} and not r["went"], r["came"]
PY
  said "^[0-9]+ [0-9a-f]{10} \"Change [0-9]+\": (good|bad: $1)"
  [ "$(git worktree list | wc -l)" = 1 ] || fail "$last: left a worktree"
  [ "$(git status --porcelain; git rev-parse HEAD; git branch)" = "$before" ] || fail "$last: touched the checkout"
}
found DDP101 17
found DDP201 31

# What it says to people; `git bisect run` does as well; only commits that cannot be judged are left; what is not bad.
doctor 0 bisect --good change-16 --bad change-18 --select DDP101 -- train.py
printed '^    Change 17$'; printed '^\+ DDP101 wrapper-bypassed: error'; printed 'src/train.py'; printed '^Verdict: [0-9a-f]{10} is the first bad commit$'
doctor 3 bisect --good change-18 --bad change-22 --select DDP101 -- train.py
printed '^Verdict: inconclusive: '; printed "^  $(git rev-parse change-20 | cut -c1-10)"
doctor 2 bisect --good change-30 --bad change-31 --select DDP306 -- train.py; complained 'change-31 is not bad'
doctor 2 bisect --good change-3 --bad change-2 -- train.py; complained 'is not an ancestor'
doctor 2 bisect --good nowhere --bad change-2 -- train.py; complained 'nowhere: no such commit'
doctor 2 bisect --bad change-2 -- train.py; complained '--good'
git clone -q "$repository" "$work/clone" && cd "$work/clone" || exit 1
git bisect start change-22 change-14 >"$work/err" 2>&1
git bisect run sh -c 'cd src && exec "$DDP_DOCTOR" check --bisect --select DDP101 train.py' >"$work/out" 2>"$work/err" || fail "git bisect run failed"
last="git bisect run"
printed "^$(git rev-parse change-17) is the first bad commit"
