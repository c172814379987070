# SPDX-License-Identifier: BSD-3-Clause
# --every: steps between are trained but not recorded, which the report says; what the error names is still found.
. "$(dirname "$0")/lib.sh"
doctor 0 run "$EXAMPLES/curriculum.pt" --strategies ddp --steps 20 --every 7 --format json
json '[s["step"] for s in runs["ddp"]["steps_table"]] == [1, 7, 14, 20] and runs["ddp"]["notes"]'
doctor 1 run "$FIXTURES/drops_layer.pt" --strategies ddp --steps 20 --every 10 --format json
json 'first["rule"] == "DDP201" and [p["name"] for p in first["parameters"]] == ["late.weight", "late.bias"] and first["first_step"] == 14'
doctor 1 run "$FIXTURES/drops_layer.pt" --strategies ddp --steps 20 --every 10
printed '^ *15 \| raised in step 15'
