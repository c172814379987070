# SPDX-License-Identifier: BSD-3-Clause
# Advice costs nothing: exit 0, and the finding is there.
. "$(dirname "$0")/lib.sh"
doctor 0 run "$EXAMPLES/multi_forward.pt" --strategies ddp-find-unused,ddp --format json
json 'r["verdict"] == "healthy" and found == ["DDP204"] and first["severity"] == "advice" and first["proof"]["cured"]'
doctor 1 run "$EXAMPLES/multi_forward.pt" --strategies ddp-find-unused --fail-on advice
doctor 0 run "$EXAMPLES/multi_forward.pt" --format json
json 'found == []'
doctor 0 run "$EXAMPLES/orphan.pt" --strategies ddp-find-unused,ddp-static-graph --format json
json 'set(found) == {"DDP201", "DDP207"} and all(f["severity"] == "advice" for f in r["findings"])'
doctor 0 run "$EXAMPLES/orphan.pt" --strategies ddp-static-graph --ignore DDP201 --format json
json 'found == []'
