# SPDX-License-Identifier: BSD-3-Clause
# Ranks are forked from a prepared worker. They look like separate processes, and an examination survives the loss of the worker.
. "$(dirname "$0")/lib.sh"
"$DDP_DOCTOR" run "$EXAMPLES/gpt.pt" --strategies ddp,ddp-find-unused --steps 10 --out "$work/run" --format json >"$work/out" 2>"$work/err" &
doctor_pid=$!
last="ddp-doctor run gpt.pt (its worker killed)"
for _ in $(seq 300); do
  rank=$(process_of_rank "$work/run/00-ddp" 1)
  [ -n "$rank" ] && break
  sleep 0.1
done
tr '\0' ' ' <"/proc/$rank/cmdline" | grep -q -- "script-probe --record $work/run/00-ddp --strategy ddp " || fail "$last: no command line of rank 1"
waits=$(pgrep -P $doctor_pid -f 'script-probe.waits')
[ -n "$waits" ] || fail "$last: no worker waits"
kill -KILL $waits
wait $doctor_pid
got=$?
[ $got = 0 ] || fail "$last: exit code $got, not 0"
nothing_left
json 'all(runs[s]["outcome"] == "clean" for s in ("ddp", "ddp-find-unused"))'
