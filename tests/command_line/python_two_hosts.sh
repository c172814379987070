# SPDX-License-Identifier: BSD-3-Clause
# Two machines (network namespaces), one disconnected during training: the report of the other names the rank that stopped
# responding, and the folders of both, merged, have all ranks.
. "$(dirname "$0")/lib.sh"
need_torch
command -v ip >/dev/null || lacks "ip (iproute2)"
a=ddpd-a-$$ b=ddpd-b-$$
clear_network() { ip netns del "$a"; ip netns del "$b"; } 2>/dev/null
{ ip netns add "$a" && ip netns exec "$a" true && ip netns add "$b" && ip link add "va$$" type veth peer name "vb$$"; } 2>"$work/err" ||
  { clear_network; not_permitted "no network namespaces here: $(cat "$work/err")"; }
trap 'clear_network; rm -rf "$work"' EXIT
ip link set "va$$" netns "$a"; ip link set "vb$$" netns "$b"
for side in a b; do
  ip -n "${!side}" link set lo up
  ip -n "${!side}" link set "v$side$$" up
done
ip -n "$a" addr add 10.213.7.1/24 dev "va$$"
ip -n "$b" addr add 10.213.7.2/24 dev "vb$$"

cat >"$work/train.py" <<'PY'
import sys, time
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.Generator().manual_seed(dist.get_rank())
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    model(torch.randn(4, 8, generator=data)).sum().backward()
    optimizer.step()
    print("step", step, flush=True)
    time.sleep(0.02 if dist.get_rank() == 0 else 0)  # so that it is rank 0 who sends into the void
dist.destroy_process_group()
PY
# side RANK STEPS: the examination on one of the machines, of torchrun where it works (Debian's does not), else of a script that a
# scheduler starts there.
torchrun=
"$PYTHON_TORCH" -m torch.distributed.run --no_python true 2>/dev/null && torchrun=yes
side() {
  local name=a
  [ "$1" = 0 ] || name=b
  local settings="RANK=$1 LOCAL_RANK=0 WORLD_SIZE=2 MASTER_ADDR=10.213.7.1 MASTER_PORT=29533" launcher=$PYTHON_TORCH
  if [ -n "$torchrun" ]; then
    settings=
    launcher="$PYTHON_TORCH -m torch.distributed.run --nnodes 2 --node_rank $1 --nproc_per_node 1 --master_addr 10.213.7.1 --master_port 29533"
  fi
  # shellcheck disable=SC2086
  exec timeout 120 ip netns exec "${!name}" env $settings GLOO_SOCKET_IFNAME="v$name$$" OMP_NUM_THREADS=1 \
    "$DDP_DOCTOR" run --timeout 60 --format json --out "$work/$name$2" -- $launcher "$work/train.py" "$2" >"$work/$name.out" 2>"$work/$name.err"
}

last="a run of 12 steps on two machines"
side 0 12 & first=$!
side 1 12 & second=$!
wait $first; code=$?; wait $second
cp "$work/a.out" "$work/out"; cp "$work/a.err" "$work/err"
[ $code = 3 ] || fail "$last: exit code $code, not 3 (one machine alone cannot tell)"
json '"rank 1 was not seen here" in " ".join(r["runs"][0]["notes"])'
doctor 0 report "$work/a12" "$work/b12" --format json
json 'r["verdict"] == "healthy" and len(r["runs"][0]["steps_table"]) == 12 and all(s["synced"] for s in r["runs"][0]["steps_table"])'
doctor 2 report "$work/a12" "$work/a12"; complained "contain the same rank; give the run directories of one job"

last="a run on two machines, one cut off"
side 0 100000 & first=$!
side 1 100000 & second=$!
for _ in $(seq 600); do
  grep -q "step 30" "$work/a.err" 2>/dev/null && break
  sleep 0.1
done
ip -n "$b" link set "vb$$" down
wait $first; code=$?
pkill -INT -f "$DDP_DOCTOR run .*--out $work/b100000"
wait $second
cp "$work/a.out" "$work/out"; cp "$work/a.err" "$work/err"
[ $code = 1 ] || fail "$last: exit code $code, not 1"
json 'first["rule"] == "DDP501" and first["ranks"] == [1] and "rank 0 waits in the backward of wrapper 0" in first["message"]'
json '"10.213.7.2" in " ".join(r["runs"][0]["notes"])'
doctor 1 report "$work/a100000" "$work/b100000" --format json
json 'first["rule"] == "DDP501" and first["ranks"] == [0, 1] and len(first["evidence"].get("stacks", {})) >= 1'
