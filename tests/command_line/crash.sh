# SPDX-License-Identifier: BSD-3-Clause
# A rank that dies, by its own error or by SIGKILL: named, with its error, and the report complete up to that step.
. "$(dirname "$0")/lib.sh"
doctor 1 run "$EXAMPLES/rank_crash.pt" --strategies ddp --format json
json 'first["rule"] == "DDP504" and first["ranks"] == [1] and first["first_step"] == 3 and "corrupt" in first["message"]'
json 'len(runs["ddp"]["steps_table"]) == 2'

# SIGKILL of rank 1, once it has done some steps of a long run.
"$DDP_DOCTOR" run "$EXAMPLES/gpt.pt" --strategies ddp --steps 500 --out "$work/run" --format json >"$work/out" 2>"$work/err" &
doctor_pid=$!
last="ddp-doctor run gpt.pt (rank 1 killed)"
for _ in $(seq 600); do
  steps=$("$python" - "$work/run/00-ddp/rank-00001.sqlite" <<'PY' 2>/dev/null
import sqlite3, sys
print(sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True).execute("select max(step) from step").fetchone()[0] or 0)
PY
)
  [ "${steps:-0}" -ge 2 ] && break
  sleep 0.1
done
[ "${steps:-0}" -ge 2 ] || fail "rank 1 did not get to step 2"
kill -KILL "$(process_of_rank "$work/run/00-ddp" 1)"
wait $doctor_pid
got=$?
[ $got = 1 ] || fail "$last: exit code $got, not 1"
nothing_left
json 'first["rule"] == "DDP504" and first["ranks"] == [1] and "signal 9" in first["message"]'
json "len(runs['ddp']['steps_table']) >= $steps and all(s['drift'] in (0, None) for s in runs['ddp']['steps_table'])"

# The records tell the same story again.
doctor 1 report "$work/run" --format json
json 'first["rule"] == "DDP504" and first["ranks"] == [1]'
