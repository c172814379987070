# SPDX-License-Identifier: BSD-3-Clause
# static_graph promises a graph that never changes; a layer that joins at step 4 breaks the promise.
. "$(dirname "$0")/lib.sh"
doctor 1 run "$EXAMPLES/step_dependent.pt" --strategies ddp-static-graph,ddp-find-unused --format json
json 'first["rule"] == "DDP206" and len(r["findings"]) == 1 and first["first_step"] == 4'
json '{p["name"] for p in first["parameters"]} == {"refinement.weight", "refinement.bias"}'
json 'runs["ddp-find-unused"]["clean"] and first["proof"]["cured"]'
