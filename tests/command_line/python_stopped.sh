# SPDX-License-Identifier: BSD-3-Clause
# A rank that is stopped for a while, by a signal or a debugger, is waited for.
. "$(dirname "$0")/lib.sh"
need_torch
"$DDP_DOCTOR" run --stall-after 30 --out "$work/run" "$here/train.py" -- --steps 60 --sleep 0.05 >"$work/out" 2>"$work/err" &
doctor_pid=$!
last="a run with a stopped rank"
for _ in $(seq 600); do
  grep -q . "$work/run/00-as-is/rank-00001.progress" 2>/dev/null && rank=$("$python" -c '
import glob, json, sys
print(next((n["pid"] for n in map(json.load, map(open, glob.glob(sys.argv[1]))) if n.get("rank") == 1), ""))' "$work/run/00-as-is/process-*.json") &&
    [ -n "$rank" ] && break
  sleep 0.1
done
kill -STOP "$rank"
sleep 8
kill -CONT "$rank"
wait $doctor_pid
got=$?
[ $got = 0 ] || fail "$last: exit code $got, not 0"
printed '^Verdict: healthy'
