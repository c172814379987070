# SPDX-License-Identifier: BSD-3-Clause
# The output of a program never blocks it, is passed on line by line, and its beginning and end are kept.
. "$(dirname "$0")/lib.sh"
need_torch
doctor 0 run "$here/train.py" --out "$work/run" -- --end shout
[ "$(wc -c <"$work/err")" -gt 100000000 ] || fail "$last: not all of it was passed on"
! grep -vqE '^\[rank [01]\] ' "$work/err" || fail "$last: a line without a prefix"
said '^\[rank 0\] the last line$'
: >"$work/err"
for rank in 0 1; do
  log=$work/run/00-as-is/rank-0000$rank.log
  [ "$(wc -c <"$log")" -lt 2200000 ] || fail "$log is too long"
  head -1 "$log" | grep -q 'has the words' && grep -aq 'bytes omitted here' "$log" && tail -1 "$log" | grep -qx 'the last line' ||
    fail "$log: an end is missing"
done

# A line that is not ended yet is passed on soon; a progress bar keeps its prefix.
cat >"$work/bar.py" <<'PY'
import sys, time
sys.stderr.write("question? ")
sys.stderr.flush()
time.sleep(1)
for i in range(3):
    sys.stderr.write("\rbar %d" % i)
    sys.stderr.flush()
    time.sleep(0.3)
PY
"$DDP_DOCTOR" run --nproc-per-node 1 "$work/bar.py" >"$work/out" 2>"$work/err" &
doctor_pid=$!
last="ddp-doctor run bar.py"
for _ in $(seq 100); do grep -q 'question' "$work/err" && break; sleep 0.05; done
! grep -q 'bar' "$work/err" || fail "$last: an incomplete line comes late"
wait $doctor_pid
grep -q 'bar 2' "$work/err" || fail "$last: the end is missing"

# Whoever goes on living and holds the pipe is not waited for.
began=$SECONDS
doctor 0 run "$here/train.py" -- --end daemon
[ $((SECONDS - began)) -lt 60 ] || fail "$last: waited for a daemon"
