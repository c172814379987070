# SPDX-License-Identifier: BSD-3-Clause
# One rank takes another branch in a single step: the cause is named although no later step completes on every rank.
. "$(dirname "$0")/lib.sh"
doctor 1 run "$FIXTURES/one_rank_skips.pt" --strategies ddp,ddp-find-unused --timeout 10 --format json
json 'first["rule"] == "DDP202" and first["first_step"] == 5 and len(r["findings"]) == 1'
json '{p["name"] for p in first["parameters"]} == {"late.weight", "late.bias"}'
json 'first["evidence"]["unused_by_rank"]["1"] == ["late.weight", "late.bias"] and first["proof"]["cured"]'
# In the very last step nothing raises: the ranks must still not meet in a collective of ours.
doctor 1 run "$FIXTURES/one_rank_skips.pt" --strategies ddp --steps 5 --timeout 10 --format json
json 'first["rule"] == "DDP202" and first["first_step"] == 5'
