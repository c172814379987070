# SPDX-License-Identifier: BSD-3-Clause
# Ctrl-C: exit 130. SIGKILL of ddp-doctor itself. Neither leaves a process, be it rank, launcher or daemon.
. "$(dirname "$0")/lib.sh"
need_torch
start() {
  local name=$1
  shift
  "$DDP_DOCTOR" run --out "$work/$name" "$@" >"$work/out" 2>"$work/err" &
  doctor_pid=$!
  last="ddp-doctor run $* ($name)"
  # Two ranks and two daemons.
  for _ in $(seq 300); do
    [ -s "$work/$name/00-as-is/rank-00001.sqlite" ] && [ "$(alive "$name" | wc -l)" -ge 4 ] && return
    sleep 0.1
  done
  fail "$last: did not start"
}
gone() {
  for _ in $(seq 50); do
    [ -z "$(alive "$1")" ] && return
    sleep 0.1
  done
  fail "$last: alive after 5 s: $(alive "$1" | xargs ps -o pid,args -p)"
}
long="$here/train.py --steps 10000 --sleep 0.1 --end daemon"
train=("$here/train.py" -- --steps 10000 --sleep 0.1 --end daemon)
launcher=(-- "$here/start_ranks" "$PYTHON_TORCH" $long)
for signal in INT TERM; do
  start program-$signal "${train[@]}"
  kill -$signal $doctor_pid
  wait $doctor_pid
  got=$?
  [ $got = 130 ] || fail "$last: exit code $got, not 130"
  said 'interrupted'
  gone program-$signal
done
start command-INT "${launcher[@]}"
kill -INT $doctor_pid
wait $doctor_pid
got=$?
[ $got = 130 ] || fail "$last: exit code $got, not 130"
gone command-INT

start program-KILL "${train[@]}"
kill -KILL $doctor_pid
wait $doctor_pid 2>/dev/null
gone program-KILL
start command-KILL "${launcher[@]}"
kill -KILL $doctor_pid
wait $doctor_pid 2>/dev/null
gone command-KILL
