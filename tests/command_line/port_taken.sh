# --master-port: works where the port is free, says so where it is not.
. "$(dirname "$0")/lib.sh"
python3 - "$work/port" <<'PY' &
import socket, sys, time
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen()
open(sys.argv[1], "w").write(str(s.getsockname()[1]))
time.sleep(60)
PY
holder=$!
for _ in $(seq 50); do [ -s "$work/port" ] && break; sleep 0.1; done
port=$(cat "$work/port")
doctor 2 run "$EXAMPLES/orphan.pt" --strategies ddp --master-port "$port"
complained "port $port on 127.0.0.1 is taken"
kill $holder
wait $holder 2>/dev/null
doctor 0 run "$EXAMPLES/curriculum.pt" --strategies ddp --master-port "$port"
