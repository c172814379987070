# SPDX-License-Identifier: BSD-3-Clause
# Micro-batches under no_sync: still exact, and counted.
. "$(dirname "$0")/lib.sh"
doctor 0 run "$EXAMPLES/curriculum.pt" --accumulate 3 --strategies ddp,allreduce-each --steps 4 --optimizer adamw --lr 0.001 --format json
json 'all(s["drift"] == 0 and s["synced"] for run in r["runs"] for s in run["steps_table"])'
json 'runs["ddp"]["mean_check"]["relative_error"] < 1e-6'
