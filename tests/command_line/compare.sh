# SPDX-License-Identifier: BSD-3-Clause
# ddp-doctor compare: programs and strategies side by side.
. "$(dirname "$0")/lib.sh"
curriculum=$EXAMPLES/curriculum.pt orphan=$EXAMPLES/orphan.pt

doctor 1 compare "$curriculum@bypass" @ddp,allreduce-flat --format json
json '[run["label"] for run in r["runs"]] == ["bypass", "ddp", "allreduce-flat"]'
json '[run["verdict"] for run in r["runs"]] == ["sick", "healthy", "healthy"] and r["purpose"] == "compare"'
json 'runs["bypass"]["findings"][0]["rule"] == "DDP101" and runs["ddp"]["findings"] == []'
json '[e["equal"] for e in r["equalities"]] == [False, False] and r["equalities"][0]["parting"]["step"] == 1'
json '"bypass: DDP101 wrapper-bypassed from step 1" in r["difference"]'

# The same twice: equal bit for bit, and that may be insisted on.
doctor 0 compare "$curriculum" @ddp --equal
printed 'Difference: .* clean; they are equal bit for bit in 8 steps and [0-9]+ parameters'
# DistributedDataParallel divides before it sums: of three ranks the bits tell, though both are right.
doctor 1 compare "$curriculum" @allreduce-flat --equal --nproc-per-node 3
said '^ddp-doctor: exit code 1 by --equal: .*(differ|part)'
doctor 0 compare "$curriculum" @allreduce-flat --nproc-per-node 3
printed '^Verdict: ddp: healthy; allreduce-flat: healthy$'

# Two programs, in Markdown.
doctor 1 compare "$orphan" "$curriculum" --format markdown --report "$work/c.md" --report "$work/c.json"
printed '^\| step \| orphan.pt@ddp r0 \| orphan.pt@ddp r1 \| synced \| curriculum.pt@ddp r0 \|'
printed '^\*\*Difference:\*\* orphan.pt@ddp: DDP201'
cmp -s "$work/out" "$work/c.md" || fail "$last: --report c.md is not what stdout has"

# Costs, by pairs of repeats; and what was kept can be shown again.
doctor 0 compare "$curriculum" @ddp-find-unused --repeats 3 --out "$work/kept" --format json
json 'runs["ddp-find-unused"]["cost"]["pairs"] == 3 and runs["ddp-find-unused"]["cost"]["base"] == 0'
doctor 0 report "$work/kept"
printed '^ddp-find-unused: .*step time of ddp'

# run --fix: the prescriptions, tried.
doctor 1 run "$orphan" --fix --repeats 0 --format json
json 'r["purpose"] == "fix" and first["proof"]["cured"] and set(runs) == {"ddp", "ddp-static-graph", "ddp-find-unused"}'
doctor 0 compare "$curriculum" --fix
doctor 1 compare "$curriculum@bypass" --fix
printed 'With ddp: healthy, every finding at warning or above is gone'

# What cannot be compared.
doctor 2 compare "$curriculum"; complained 'nothing to compare it with'
doctor 2 compare; complained 'programs'
doctor 2 compare "$curriculum@dpd" "$orphan"; complained 'dpd: not a strategy for this program; did you mean ddp'
doctor 2 compare @ddp; complained 'name a program before its strategies'
doctor 2 compare nowhere.pt "$orphan"; complained 'nowhere.pt: no such file'
doctor 2 compare "$curriculum" "$orphan" --fix; complained 'one program'
