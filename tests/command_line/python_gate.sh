# SPDX-License-Identifier: BSD-3-Clause
# ddp-doctor check: strict, quiet, with expectations; every exit code, on a pipe and on a terminal.
. "$(dirname "$0")/lib.sh"
need_torch
corpus=$here/../corpus
cd "$work" || exit 1

# Healthy: one line, nothing of the program, every step looked at.
doctor 0 check "$here/train.py" --out "$work/healthy" -- --steps 25
[ "$(cat "$work/out")" = 'Verdict: healthy: 2 ranks x 25 steps, replicas bit-identical' ] && [ ! -s "$work/err" ] || fail "$last: more than one line"

# A gate that compared nothing does not pass.
doctor 3 check --nproc-per-node 1 "$here/train.py"; printed '^Verdict: inconclusive: one rank, nothing to compare across ranks: give the gate two or more$'

# One unit in the last place, in one element of one parameter among ten million, at one step only.
cat >ulp.py <<'PY'
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(0)
net = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(10)))
model = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
victim = net[7].weight.data
torch.manual_seed(1 + dist.get_rank())
for step in range(1, 6):
    optimizer.zero_grad()
    model(torch.randn(2, 1024)).square().mean().backward()
    optimizer.step()
    if step == 3 and dist.get_rank() == 1:
        kept = victim[11, 13].clone()
        victim[11, 13] = torch.nextafter(kept, kept + 1)
    if step == 4 and dist.get_rank() == 1:
        victim[11, 13] = torch.nextafter(victim[11, 13], victim[11, 13] - 1)
PY
doctor 1 check ulp.py --format json
json 'sum(__import__("math").prod(p["shape"]) for p in runs["as-is"]["parameters"]) > 10_000_000'
json '{tuple(p["name"] for p in f["parameters"]) for f in flat(r["findings"]) if f["severity"] != "advice"} == {("7.weight",)}'
json 'all(f["ranks"] in ([1], [0, 1]) for f in flat(r["findings"])) and first["first_step"] in (3, 4)'

# A table: records of one sick run, judged in many ways. EXIT-CODE LINE-THAT-STDOUT-HAS FLAGS...
doctor 1 check "$corpus/ddp201_unused_parameters_3.py" --out "$work/unused" -- bug
judge() {
  local code=$1 line=$2
  shift 2
  doctor "$code" report "$work/unused" --brief "$@"
  printed "$line"
}
judge 1 '^Verdict: sick: DDP201 unused-parameters$'
judge 1 '^Verdict: sick' --fail-on error
judge 0 '^Verdict: sick' --fail-on never
judge 1 '^Verdict: sick: DDP201' --select DDP201
judge 1 '^Verdict: sick: DDP201' --select unused-parameters --max-drift 1
judge 1 '^Verdict: sick: DDP504' --select DDP504
judge 3 '^Verdict: inconclusive' --select DDP306
judge 1 '^Verdict: sick: DDP1' --ignore DDP201
for suppression in 'DDP201:confidence.*:*' 'unused-parameters:confidence.*:*unused_parameters_3.py' 'DDP201:*:*_3.py:*'; do
  judge 1 '^Verdict: sick: DDP' --suppress "$suppression is for the next release"
  not_printed '^DDP201'
done
judge 1 '^DDP201' --suppress 'DDP201:confidence.weight:* only half of it'
judge 1 'suppression covers only part of a finding, so it has no effect .confidence.bias of DDP201 unused-parameters is left.: DDP201:confidence.weight:\* only half' --suppress 'DDP201:confidence.weight:* only half'
judge 1 '^Verdict: sick: DDP' --suppress 'DDP201:confidence.weight:* one' --suppress 'DDP201:*.bias:* other'
not_printed '^DDP201'; not_printed 'matched nothing'
judge 1 '^DDP201' --suppress 'DDP201:confidence.*:elsewhere.py not here'
doctor 2 report "$work/unused" --suppress 'DDP201:confidence.*:*'; complained 'say why this is expected'
doctor 2 report "$work/unused" --suppress 'DDP201 too short'; complained 'write CODE:PARAMETERS:PLACE'
doctor 2 report "$work/unused" --suppress 'DDP999:*:* no such rule'; complained 'DDP999 is not a rule'
doctor 1 report "$work/unused" --suppress 'DDP201:confidence.*:* later' --format json
json '[s["finding"]["rule"] for s in r["suppressed"]] == ["DDP201"] and r["suppressed"][0]["reason"] == "later" and "DDP201" not in found'

# A printed suppression is one: with all of them nothing is left, and the file is what says so.
doctor 1 check "$corpus/ddp303_buffers_drift.py" --print-suppression -- bug
grep -qE '^"DDP303:.*:.*ddp303_buffers_drift.py say why: buffers-drift",$' "$work/out" || fail "$last: no suppression"
{ echo '[check]'; echo 'suppress = ['; sed 's/say why: .*",$/evaluation is on rank 0 only",/' "$work/out" | sed '$ s/,$//'; echo ']'; echo 'nproc-per-node = 2'; } >ddp-doctor.toml
doctor 0 check "$corpus/ddp303_buffers_drift.py" --format json -- bug
json 'r["verdict"] == "healthy" and {s["reason"] for s in r["suppressed"]} == {"evaluation is on rank 0 only"} and not r["unused_suppressions"]'
doctor 0 check "$here/train.py"; printed 'suppression matched nothing, remove it: DDP303'

# What the file says is a default; what it should not say is refused.
printf '[check]\nprogram = "%s"\narguments = ["--steps", "3"]\nfail-on = "never"\n' "$here/train.py" >ddp-doctor.toml
doctor 0 check; printed '2 ranks x 3 steps'
doctor 0 check --nproc-per-node 3 -- --steps 5; printed '3 ranks x 5 steps'
mv ddp-doctor.toml other.toml
doctor 0 check --config other.toml; printed '2 ranks x 3 steps'
doctor 2 check --config nowhere.toml; complained 'nowhere.toml'
printf '[check]\nstrict = true\n' >ddp-doctor.toml
doctor 2 check "$here/train.py"; complained 'strict'
rm ddp-doctor.toml

# Drift: a bound is a choice, and holds for what is exactly known.
doctor 1 check "$corpus/ddp301_weights_drift.py" --out "$work/drift" -- bug
doctor 1 report "$work/drift" --max-drift 1e-30
doctor 2 report "$work/drift" --max-drift -1; complained 'max-drift'

# Exit codes: could not run, inconclusive, interrupted.
doctor 2 check nowhere.py; complained 'nowhere.py'
echo 'print("no training")' >idle.py
doctor 3 check idle.py; printed '^Verdict: inconclusive: nothing could be examined: no Python process that imports torch'
! grep -q '^note: no Python process' "$work/out" || fail 'the note is printed beside the verdict that has it'
doctor 125 check --bisect idle.py
doctor 125 check --bisect nowhere.py; complained 'cannot tell: .*nowhere.py'
doctor 125 check --bisect --no-such-flag idle.py; complained 'no-such-flag'
doctor 1 check --bisect "$corpus/ddp201_unused_parameters_3.py" --select DDP201 -- bug
doctor 0 check --bisect "$corpus/ddp201_unused_parameters_3.py" --select DDP201 -- fixed

# On a terminal: colour, and the same verdict and code; none where NO_COLOR says so, or on a pipe.
terminal() { "$python" - "$work/out" "$DDP_DOCTOR" report "$work/unused" --brief <<'PY'; }
import os, pty, sys
out = open(sys.argv[1], "wb")
def read(terminal):
    data = os.read(terminal, 4096)
    out.write(data)
    return data
status = pty.spawn(sys.argv[2:], read, lambda _: b"")
sys.exit(os.waitstatus_to_exitcode(status))
PY
last="ddp-doctor report on a terminal"
terminal >"$work/err" 2>&1; [ $? = 1 ] || fail "$last: not exit code 1"
grep -q $'\x1b\[1;31mVerdict: sick: DDP201' "$work/out" || fail "$last: no colour"
NO_COLOR=1 terminal >"$work/err" 2>&1
printed '^Verdict: sick: DDP201'; not_printed $'\x1b'
