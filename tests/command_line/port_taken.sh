# SPDX-License-Identifier: BSD-3-Clause
# --master-port: works where the port is free, the message says so where it is not.
. "$(dirname "$0")/lib.sh"
"$python" - "$work/port" <<'PY' &
import socket, sys, time
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen()
open(sys.argv[1], "w").write(str(s.getsockname()[1]))
time.sleep(60)
PY
holder=$!
for _ in $(seq 50); do [ -s "$work/port" ] && break; sleep 0.1; done
port=$(cat "$work/port")
doctor 2 run "$EXAMPLES/orphan.pt" --strategies ddp --master-port "$port"
complained "port $port on 127.0.0.1 is in use"
kill $holder
wait $holder 2>/dev/null
doctor 0 run "$EXAMPLES/curriculum.pt" --strategies ddp --master-port "$port"

# Listening is on loopback only: no socket of a rank is bound to another address.
"$DDP_DOCTOR" run "$EXAMPLES/gpt.pt" --strategies ddp --steps 500 --master-port "$port" --out "$work/run" >"$work/out" 2>"$work/err" &
doctor_pid=$!
last="ddp-doctor run gpt.pt --master-port $port"
# Columns: local address, state (0A: listening), inode. 0100007F is 127.0.0.1.
listening() {
  for pid in $(pgrep -P $doctor_pid); do
    ls -l "/proc/$pid/fd" 2>/dev/null | grep -o 'socket:\[[0-9]*\]' | tr -dc '0-9\n'
  done >"$work/inodes"
  cat /proc/net/tcp /proc/net/tcp6 | awk '$4 == "0A" {print $2, $10}' | grep -wFf "$work/inodes" >"$work/listening"
}
for _ in $(seq 300); do
  listening && grep -qi ":$(printf %04X "$port") " "$work/listening" && break
  sleep 0.1
done
# Gloo's sockets come a moment after the store's.
sleep 1
listening
kill -INT $doctor_pid
wait $doctor_pid
grep -qi ":$(printf %04X "$port") " "$work/listening" || fail "$last: nobody listens on the port: $(cat "$work/listening")"
! grep -vE '^(0000000000000000FFFF0000)?0100007F:' "$work/listening" || fail "$last: a socket listens beyond loopback"
