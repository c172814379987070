# SPDX-License-Identifier: BSD-3-Clause
# As the child of torchrun, or of any launcher: each rank under a ddp-doctor of its own, and one report, by local rank 0.
. "$(dirname "$0")/lib.sh"
need_torch
port() { "$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
# ranks EXIT-CODE-0 EXIT-CODE-1 ARGS...
ranks() {
  local want=("$1" "$2") pids=() rank
  shift 2
  last="ddp-doctor run $* (as ranks)"
  export MASTER_ADDR=127.0.0.1 MASTER_PORT WORLD_SIZE=2
  MASTER_PORT=$(port)
  for rank in 1 0; do
    RANK=$rank LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 timeout 120 "$DDP_DOCTOR" run "$@" >"$work/out.$rank" 2>"$work/err.$rank" &
    pids[$rank]=$!
  done
  for rank in 0 1; do
    wait ${pids[$rank]}
    local got=$?
    cp "$work/out.$rank" "$work/out"
    cp "$work/err.$rank" "$work/err"
    [ $got = "${want[$rank]}" ] || fail "$last: rank $rank: exit code $got, not ${want[$rank]}"
  done
  unset MASTER_ADDR MASTER_PORT WORLD_SIZE
  [ ! -s "$work/out.1" ] || fail "$last: rank 1 printed something"
  cp "$work/out.0" "$work/out"
  nothing_left
}
ranks 0 0 "$here/train.py" --format json -- --steps 3
json 'r["verdict"] == "healthy" and r["world_size"] == 2 and len(runs["as-is"]["steps_table"]) == 3'
said 'rank 1 of 2 has'
ranks 0 0 --format json --out "$work/run" -- "$PYTHON_TORCH" "$here/train.py"
json 'r["verdict"] == "healthy" and r["world_size"] == 2'
doctor 0 report "$work/run"
ranks 1 3 "$here/train.py" --format json -- --end exit3
json 'first["rule"] == "DDP504" and first["ranks"] == [1] and "status 3" in first["message"]'
ranks 1 1 "$here/train.py" --format json -- --end kill
json 'first["rule"] == "DDP504" and first["ranks"] == [1] and "signal 9" in first["message"]'
ranks 2 2 "$here/missing.py"
echo 'import nowhere' >"$work/train.py"
ranks 2 1 "$work/train.py"
grep -q 'before torch.distributed was initialized: ModuleNotFoundError' "$work/err.0" || fail "$last: rank 0 does not say why"

torchrun="$PYTHON_TORCH -m torch.distributed.run --no_python --nproc_per_node 2"
$torchrun true 2>/dev/null || exit 0  # Debian's does not work
last="torchrun ddp-doctor run train.py"
timeout 120 $torchrun "$DDP_DOCTOR" run "$here/train.py" --format json >"$work/out" 2>"$work/err" || fail "$last: exit code $?"
json 'r["verdict"] == "healthy" and r["world_size"] == 2'
nothing_left
timeout 120 $torchrun "$DDP_DOCTOR" run --nproc-per-node 2 "$here/train.py" >"$work/out" 2>"$work/err" && fail "$last: not refused"
complained 'give --nproc_per_node to torchrun only'

# torchrun ends its ranks by SIGTERM: there is a report all the same.
$torchrun "$DDP_DOCTOR" run "$here/train.py" --format json -- --steps 10000 --sleep 0.1 >"$work/out" 2>"$work/err" &
job=$!
last="torchrun ddp-doctor run train.py (SIGTERM)"
for _ in $(seq 300); do [ "$(ls "$TMPDIR"/ddp-doctor-*/00-as-is/rank-*.sqlite 2>/dev/null | wc -l)" = 2 ] && break; sleep 0.1; done
sleep 1
kill -TERM $job
wait $job
json 'r["verdict"] == "inconclusive" and r["world_size"] == 2'
nothing_left
