# SPDX-License-Identifier: BSD-3-Clause
# Rank parity chooses the branch: the defaults fail as in PyTorch, find_unused_parameters fixes it.
. "$(dirname "$0")/lib.sh"
doctor 1 run "$EXAMPLES/conditional.pt" --format json
json 'first["rule"] == "DDP202" and len(r["findings"]) == 1 and first["first_step"] == 1'
json '{p["name"] for p in first["parameters"]} == {"linear2.weight", "linear2.bias", "linear3.weight", "linear3.bias"}'
json 'runs["ddp"]["steps_table"][0]["unused"][0] != runs["ddp"]["steps_table"][0]["unused"][1]'
json 'runs["ddp"]["steps_table"][0]["drift"] > 0 and "raised in step 2" in runs["ddp"]["outcome"]'
json 'runs["ddp-find-unused"]["clean"] and all(s["drift"] == 0 for s in runs["ddp-find-unused"]["steps_table"])'
doctor 0 run "$EXAMPLES/conditional.pt" --strategies ddp-find-unused
