# SPDX-License-Identifier: BSD-3-Clause
# ddp-doctor run train.py: starts the ranks itself; the program's arguments and output are unchanged.
. "$(dirname "$0")/lib.sh"
need_torch
doctor 0 run "$here/train.py" --out "$work/run" --format json -- --steps 5 one -- --two
json 'r["verdict"] == "healthy" and r["world_size"] == 2 and list(runs) == ["as-is"] and len(runs["as-is"]["steps_table"]) == 5'
json 'all(s["synced"] and s["drift"] == 0 for s in runs["as-is"]["steps_table"])'
json '[e["kind"] for e in runs["as-is"]["exit"]["ranks"]] == ["exited"] * 2 and runs["as-is"]["exit"]["completed"]'
said "^\[rank 0\] rank 0 of 2 has the words \['one', '--two'\]$"
said "^\[rank 1\] rank 1 of 2 has the words \['one', '--two'\]$"
grep -q "^rank 1 of 2 has" "$work/run/00-as-is/rank-00001.log" || fail "$last: rank 1's log lacks what it wrote"
mv "$work/out" "$work/first.json"
doctor 0 report "$work/run" --format json
cmp -s "$work/out" "$work/first.json" || fail "$last: differs from what the run reported"

# Quiet: the verdict, and nothing of the program.
doctor 0 run -q "$here/train.py"
[ "$(wc -l <"$work/out")" = 1 ] && [ ! -s "$work/err" ] || fail "$last: more than the verdict"

# One rank, and three; no prefix where there is but one to tell from.
doctor 0 run --nproc-per-node 1 "$here/train.py"; said '^rank 0 of 1'; printed 'one rank, nothing to compare'
(cd "$here" && doctor 0 run --nproc_per_node=3 train.py --format json && json 'r["world_size"] == 3 and r["program"]["path"] == "train.py"') || exit 1

# Off is off.
got=0
env DDP_DOCTOR=0 "$DDP_DOCTOR" run "$here/train.py" >"$work/out" 2>"$work/err" || got=$?
last="DDP_DOCTOR=0 ddp-doctor run train.py"
[ $got = 3 ] || fail "$last: exit code $got, not 3"
said 'rank 1 of 2'; printed 'DDP_DOCTOR=0 disables the probe'
