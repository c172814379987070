# SPDX-License-Identifier: BSD-3-Clause
# An output that the loss leaves out: called, and in the output, but not in the loss. A detached layer: neither.
. "$(dirname "$0")/lib.sh"
doctor 1 run "$EXAMPLES/multi_output.pt" --format json
json 'first["rule"] == "DDP201" and {p["name"] for p in first["parameters"]} == {"auxiliary_head.weight", "auxiliary_head.bias"}'
json 'list(first["evidence"]["reasons"]) == ["called, but its output is not in the loss"]'
json 'first["prescription"]["strategy"] == "ddp-find-unused" and first["proof"]["cured"]'
doctor 1 run "$EXAMPLES/detached.pt" --strategies ddp --format json
json 'list(first["evidence"]["reasons"]) == ["called, but detached from the output"]'
