# SPDX-License-Identifier: BSD-3-Clause
# Strategies on unmodified programs in Python: compare, and run --fix.
. "$(dirname "$0")/lib.sh"
need_torch
corpus=$here/../corpus

# A bypass is routed through the wrapper; programs and arguments.
doctor 1 compare "$corpus/ddp101_wrapper_bypassed.py" @ddp --format json -- bug
json '[run["verdict"] for run in r["runs"]] == ["sick", "healthy"]'
json '"runs through the wrapper" in " ".join(r["runs"][1]["changes"]) and r["runs"][0]["changes"] == []'
json 'len(set(r["runs"][1]["changes"])) == len(r["runs"][1]["changes"])'

# Programs, and a command; costs by pairs.
doctor 0 compare "$here/train.py" "sh $here/start_ranks $PYTHON_TORCH $here/train.py" --format json
json '[run["world_size"] if "world_size" in run else r["world_size"] for run in r["runs"]] == [2, 2] and r["equalities"][0]["equal"]'

# --fix: the finding, its cure, its proof, the change in the user's own line.
doctor 1 run --fix --repeats 1 --format json "$corpus/ddp201_unused_parameters.py" -- bug
json 'first["proof"]["cured"] and "model = DDP(" in first["change"]["after"] and "=True)" in first["change"]["after"]'
json '{run["strategy"]: run["verdict"] for run in r["runs"]} == {"as-is": "sick", "ddp-static-graph": "healthy", "ddp-find-unused": "healthy", "as-changed": "healthy"}'
doctor 0 run --fix --repeats 0 "$here/train.py"
printed '^Verdict: healthy'

# What cannot be applied is said.
doctor 2 compare "$here/train.py" @bypass; complained 'bypass: not a strategy for this program; there are ddp, '
doctor 0 compare "$corpus/ddp302_initial_weights_differ.py" @broadcast-init -- fixed
