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

# Processes that load torch without the probe: why, as /proc shows it. A file of that name stands in torch's place.
head -c 4096 /dev/zero >"$work/libtorch_python.so"
cat >"$work/loads.py" <<PY
import mmap, time
file = open("$work/libtorch_python.so", "r+b")
mapped = mmap.mmap(file.fileno(), 0)
time.sleep(0.7)
PY
because() {
  local why=$1
  shift
  doctor 3 run -- "$@"; printed "^Verdict: inconclusive: nothing could be examined: .*loads torch, without the probe: $why"
}
because 'python -I ignores PYTHONPATH' "$python" -I "$work/loads.py"
because 'python -S does not run sitecustomize' "$python" -u -S "$work/loads.py"
because 'the command that ddp-doctor started did not pass its environment on' env -i "$python" "$work/loads.py"
printf 'env -i %s %s/loads.py\nexit 0\n' "$python" "$work" >"$work/clears.sh"
because ".*sh $work/clears.sh did not pass its environment on" sh "$work/clears.sh"
because "its PYTHONPATH was changed to '/src'" env PYTHONPATH=/src "$python" "$work/loads.py"
mkdir "$work/site"; echo 'own = True' >"$work/site/sitecustomize.py"
because "$work/site/sitecustomize.py comes before its sitecustomize" sh -c "PYTHONPATH=$work/site:\$PYTHONPATH $python $work/loads.py; exit 0"
because 'DDP_DOCTOR=0 in its environment' env DDP_DOCTOR=0 "$python" "$work/loads.py"
# One that fails: of what is not known of it nothing is claimed.
doctor 2 run -- "$python" -I -c "$(cat "$work/loads.py"); raise ValueError('out of luck')"
complained 'it was not examined: .*python -I ignores PYTHONPATH.*: ValueError: out of luck'
