# SPDX-License-Identifier: BSD-3-Clause
# Each machine reports its own ranks as JSON, and these reports are merged; here two folders made of one run stand for two machines.
. "$(dirname "$0")/lib.sh"
need_torch
cat >"$work/train.py" <<'PY'
import sys
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.Generator().manual_seed(dist.get_rank())
for step in range(1, 7):
    optimizer.zero_grad()
    model(torch.randn(4, 8, generator=data)).square().sum().backward()
    optimizer.step()
    if step == 3 and dist.get_rank() >= 2 and "part" in sys.argv:
        with torch.no_grad():
            model.module.bias.add_(1.0)
dist.destroy_process_group()
PY
# machines RUN: $work/node0 with ranks 0 and 1, $work/node1 with ranks 2 and 3.
machines() {
  rm -rf "$work"/node0 "$work"/node1
  for node in 0 1; do
    mkdir "$work/node$node"
    cp "$1"/00-as-is/rank-0000$((2 * node)).* "$1"/00-as-is/rank-0000$((2 * node + 1)).* "$work/node$node"
    "$python" - "$1/00-as-is/run.json" "$work/node$node/run.json" $node <<'PY'
import json, sys
run = json.load(open(sys.argv[1]))
run["exits"] = [e for e in run["exits"] if e["rank"] // 2 == int(sys.argv[3])]
json.dump(run, open(sys.argv[2], "w"))
PY
  done
}
satisfies_the_schema() {
  "$python" -c 'import json, sys, jsonschema
schema, report = (json.load(open(name)) for name in sys.argv[1:])
jsonschema.Draft7Validator(schema).validate(report)' "$here/../../docs/report.schema.json" "$1" || fail "$last: $1 does not satisfy the schema"
}

doctor 0 run "$work/train.py" --nproc-per-node 4 --out "$work/well"
machines "$work/well"
for node in 0 1; do
  doctor 3 report "$work/node$node" --format json # one machine alone cannot tell
  json 'r["findings"] == [] and len(r["runs"][0]["steps_table"][0]["loss"]) == 2 and "were not seen here" in " ".join(r["runs"][0]["notes"])'
  cp "$work/out" "$work/node$node.json"
  satisfies_the_schema "$work/node$node.json"
done
doctor 3 report "$work/node1" -q
printed '^Verdict: inconclusive: nothing found on ranks 2 and 3 of 4, and the others are not in this report$'
doctor 0 report "$work/node0.json" "$work/node1.json" --report "$work/all.json" --report "$work/all.html"
printed '^Verdict: healthy: 4 ranks x 6 steps, replicas bit-identical$'
satisfies_the_schema "$work/all.json"
cp "$work/out" "$work/first"
doctor 0 report "$work/all.json"
cmp -s "$work/out" "$work/first" || fail "$last: a merged report, read again, says something else"
doctor 0 report "$work/node0" "$work/node1" -q
printed '^Verdict: healthy: 4 ranks x 6 steps, replicas bit-identical$'

# What is not of one job, or no report.
doctor 2 report "$work/node0.json" "$work/all.json"
complained 'are both about rank 0-1; merge the reports of one job.s machines only'
doctor 2 report "$work/node0.json" "$work/node1"
complained 'node0.json is a file and .*node1 is a directory; give either run directories or JSON reports of them'
head -c 500 "$work/node1.json" >"$work/cut.json"
doctor 2 report "$work/node0.json" "$work/cut.json"
complained 'cut.json: not JSON, or truncated; make it again'
echo '{"a": 1}' >"$work/other.json"
doctor 2 report "$work/other.json"
complained 'other.json: JSON, but not a report of ddp-doctor'
doctor 2 report "$work/all.json" --baseline "$work/b.json" --update-baseline
complained 'give run directories'

# Each machine agrees with itself; they differ from one another.
doctor 1 run "$work/train.py" --nproc-per-node 4 --out "$work/apart" -- part
machines "$work/apart"
for node in 0 1; do
  doctor 3 report "$work/node$node" --report "$work/node$node.json"
done
doctor 1 report "$work/node1.json" "$work/node0.json" --format json
json 'first["rule"] == "DDP301" and first["evidence"]["groups"] == ["0-1", "2-3"]'
json '"open the run folders of two machines together" in first["prescription"]["text"].lower()'
satisfies_the_schema "$work/out"
for format in $(formats); do
  doctor 1 report "$work/node1.json" "$work/node0.json" --format "$format"
  [ -s "$work/out" ] || fail "$last: nothing"
done
doctor 1 report "$work/node0" "$work/node1" --format json # and so they are opened
json '"DDP301" in found'
