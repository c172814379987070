# SPDX-License-Identifier: BSD-3-Clause
# Ctrl-C: a report of what was seen, exit 130 if nothing was found. SIGKILL of ddp-doctor itself. Neither leaves a process, be it rank, launcher or daemon.
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
ends() {
  local got=0
  wait $doctor_pid || got=$?
  [ $got = "$1" ] || fail "$last: exit code $got, not $1"
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
  ends 130
  printed '^Verdict: inconclusive: interrupted after [1-9][0-9]* step'
  gone program-$signal
done
start command-INT "${launcher[@]}"
kill -INT $doctor_pid
ends 130
printed '^Verdict: inconclusive: interrupted after'
gone command-INT

# A second one a moment later: at once, without a report, and without a process.
start program-twice "${train[@]}" --stubborn
kill -INT $doctor_pid
sleep 0.25
kill -INT $doctor_pid
ends 130
gone program-twice

# A finding decides: it is announced while the job runs, SIGUSR1 tells the state, and Ctrl-C is answered by the report.
start bypassed --format json "$here/train.py" -- --steps 10000 --sleep 0.05 --end daemon --bypass
for _ in $(seq 200); do grep -q DDP101 "$work/err" && break; sleep 0.1; done
said '^ddp-doctor: DDP101 wrapper-bypassed: error, certain; ranks 0 and 1, from step 1; .*train.py:[0-9]+'
grep -q '"rule":"DDP101"' "$work/bypassed/findings.jsonl" || fail "$last: not in findings.jsonl"
kill -USR1 $doctor_pid
for _ in $(seq 50); do grep -q 'rank 1: step' "$work/err" && break; sleep 0.1; done
said '^ddp-doctor: rank 1: step [0-9]+, '
[ "$(grep -c '^ddp-doctor: DDP101' "$work/err")" = 2 ] || fail "$last: not announced once, and told once"
kill -TERM $doctor_pid
ends 1
json 'first["rule"] == "DDP101" and r["verdict"] == "sick" and r["runs"][0]["exit"]["ending"] == "interrupted"'
gone bypassed

# Ctrl-C in a later run of --fix: what the first one has shown is told, and nothing is called cured.
start fixing --fix --repeats 0 --format json "$here/train.py" -- --steps 25 --sleep 0.2 --end daemon --bypass
for _ in $(seq 600); do ls "$work"/fixing/01-*/rank-00001.sqlite >"$work/seen" 2>&1 && break; sleep 0.1; done
said '^ddp-doctor: run 1, .*as-is: DDP101'
kill -INT $doctor_pid
ends 1
json 'first["rule"] == "DDP101" and r["verdict"] == "sick" and not (first["proof"] or {}).get("cured")'
gone fixing

start program-KILL "${train[@]}"
kill -KILL $doctor_pid
wait $doctor_pid 2>/dev/null
gone program-KILL
start command-KILL "${launcher[@]}"
kill -KILL $doctor_pid
wait $doctor_pid 2>/dev/null
gone command-KILL
