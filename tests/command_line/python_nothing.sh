# SPDX-License-Identifier: BSD-3-Clause
# A program in which there is nothing to compare: the report says what was not checked, and why; exit 3.
. "$(dirname "$0")/lib.sh"
need_torch
inconclusive() {
  doctor 3 run --nproc-per-node "${2:-2}" "$work/train.py" --format json --out "$work/run"
  json 'r["verdict"] == "inconclusive" and not r["findings"]'
  json "any('$1' in note for note in runs['as-is']['notes'])"
  doctor 3 report "$work/run"; printed "$1"
  rm -r "$work/run"
}
echo 'print("no torch here")' >"$work/train.py"
inconclusive 'no Python process that imports torch was seen'
cat >"$work/train.py" <<'PY'
import torch
model = torch.nn.DataParallel(torch.nn.Linear(2, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 2)).sum().backward()
optimizer.step()
PY
inconclusive 'no process initialized torch.distributed: nothing to compare'
inconclusive 'uses torch.nn.DataParallel' 1
cat >"$work/train.py" <<'PY'
import torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
PY
inconclusive 'no optimizer step was seen'
