# SPDX-License-Identifier: BSD-3-Clause
# Ctrl-C: a report of what was seen, exit 130 if nothing was found, no rank left. SIGKILL of ddp-doctor itself: no rank left either.
. "$(dirname "$0")/lib.sh"
ranks_of() { pgrep -f "script-probe.*$work/$1"; }
start() {
  "$DDP_DOCTOR" run "$EXAMPLES/gpt.pt" --strategies ddp --steps 500 --out "$work/$1" >"$work/out" 2>"$work/err" &
  doctor_pid=$!
  last="ddp-doctor run gpt.pt ($1)"
  for _ in $(seq 300); do
    [ -s "$work/$1/00-ddp/rank-00001.sqlite" ] && return
    sleep 0.1
  done
  fail "$last: did not start"
}
gone() {
  for _ in $(seq 50); do
    ranks_of "$1" >/dev/null || return 0
    sleep 0.1
  done
  fail "$last: ranks alive after 5 s: $(ranks_of "$1" | tr '\n' ' ')"
}

start interrupted
kill -INT $doctor_pid
wait $doctor_pid
got=$?
[ $got = 130 ] || fail "$last: exit code $got, not 130"
printed '^Verdict: inconclusive: interrupted after [0-9]+ step'
gone interrupted

start killed
kill -KILL $doctor_pid
wait $doctor_pid 2>/dev/null
gone killed
