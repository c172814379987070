# SPDX-License-Identifier: BSD-3-Clause
# 1, 2, 4 and 8 ranks, on however few cores.
. "$(dirname "$0")/lib.sh"
for ranks in 1 2 4 8; do
  doctor 0 run "$EXAMPLES/curriculum.pt" --nproc-per-node $ranks --strategies ddp --steps 4 --format json
  json "r['world_size'] == $ranks and len(runs['ddp']['steps_table'][0]['gradient_norm']) == $ranks and runs['ddp']['clean']"
done
doctor 1 run "$EXAMPLES/orphan.pt" --nproc_per_node 4 --strategies ddp --format json
json 'first["rule"] == "DDP201" and first["ranks"] == [0, 1, 2, 3]'
doctor 1 run "$EXAMPLES/orphan.pt" --nproc-per-node 1 --strategies ddp --format json
json 'first["rule"] == "DDP201"'
