# SPDX-License-Identifier: BSD-3-Clause
# NaN on one rank: replicas stay bit-identical, and the run is sick all the same, from that rank and step on.
. "$(dirname "$0")/lib.sh"
doctor 1 run "$FIXTURES/nan_on_rank_one.pt" --strategies ddp --format json
json 'first["rule"] == "DDP402" and first["ranks"] == [1] and first["first_step"] == 4 and len(r["findings"]) == 1'
json 'runs["ddp"]["steps_table"][5]["loss"] == ["nan", "nan"] and runs["ddp"]["steps_table"][5]["synced"]'
