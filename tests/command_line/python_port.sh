# SPDX-License-Identifier: BSD-3-Clause
# The port of the ranks' store: a free one, another one if a process took it, or the one that the user chose.
. "$(dirname "$0")/lib.sh"
need_torch
# Whoever comes first to a port finds it taken.
cat >"$work/train.py" <<PY
import os, runpy, sys
seen = "$work/seen-" + os.environ["MASTER_PORT"]
if len([name for name in os.listdir("$work") if name.startswith("seen-")]) < int(sys.argv.pop(1)) and not os.path.exists(seen):
    open(seen, "w").close()
if os.path.exists(seen):
    raise OSError(98, "Address already in use")
runpy.run_path("$here/train.py", run_name="__main__")
PY
doctor 0 run "$work/train.py" -- 2; said "another process took the ranks' port"
[ "$(ls "$work" | grep -c seen-)" = 2 ] || fail "$last: not two attempts before the last"
rm "$work"/seen-*
doctor 2 run "$work/train.py" -- 9; complained 'Address already in use'
[ "$(ls "$work" | grep -c seen-)" = 3 ] || fail "$last: not three attempts"

"$python" - "$work/port" <<'PY' &
import socket, sys, time
s = socket.socket(); s.bind(("", 0)); s.listen()
open(sys.argv[1], "w").write(str(s.getsockname()[1]))
time.sleep(120)
PY
holder=$!
for _ in $(seq 50); do [ -s "$work/port" ] && break; sleep 0.1; done
port=$(cat "$work/port")
doctor 2 run --nproc-per-node 1 --master-port "$port" "$here/train.py"; complained "port $port is taken"
kill $holder
wait $holder 2>/dev/null
doctor 0 run --nproc-per-node 1 --master-port "$port" "$here/train.py"

# A program that starts its ranks itself is a command.
cat >"$work/spawns.py" <<PY
import os, sys, torch.multiprocessing as mp
def main(rank, port):
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    sys.argv = ["train.py"]
    import runpy
    runpy.run_path("$here/train.py", run_name="__main__")
if __name__ == "__main__":
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(main, (port,), nprocs=2)
PY
doctor 0 run --format json -- "$PYTHON_TORCH" "$work/spawns.py"
json 'r["verdict"] == "healthy" and r["world_size"] == 2'
doctor 2 run "$work/spawns.py"; complained 'starts its ranks itself: .*run it as a command: ddp-doctor run -- .*python.* .*spawns.py'
# Two of them at once, where the port is fixed: one comes too late, and its error is not the program's.
sed "s/port = s.getsockname()\[1\]/port = $port/" "$work/spawns.py" >"$work/fixed_port.py"
doctor 2 run "$work/fixed_port.py"; complained 'starts its ranks itself'
