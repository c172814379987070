# SPDX-License-Identifier: BSD-3-Clause
# The orphan layer: DDP201 first, step 1 already unsynchronized, PyTorch's own error at step 2, and two fixes that work.
. "$(dirname "$0")/lib.sh"
doctor 1 run "$EXAMPLES/orphan.pt" --format json
json 'r["verdict"] == "sick" and first["rule"] == "DDP201" and len(r["findings"]) == 1'
json '[(p["name"], p["index"]) for p in first["parameters"]] == [("orphan.weight", 0), ("orphan.bias", 1)]'
json 'first["ranks"] == [0, 1] and first["first_step"] == 1 and "never called" in first["evidence"]["reasons"]'
json '{"DDP102", "DDP301", "DDP504"} <= set(found)'
json 'len(runs["ddp"]["steps_table"]) == 1 and not runs["ddp"]["steps_table"][0]["synced"] and runs["ddp"]["steps_table"][0]["drift"] > 0'
json 'runs["ddp"]["steps_table"][0]["unused"] == [[0, 1], [0, 1]]'
json '"Expected to have finished reduction in the prior iteration" in runs["ddp"]["outcome"] and "step 2" in runs["ddp"]["outcome"]'
for strategy in ddp-find-unused ddp-static-graph; do
  json "runs['$strategy']['clean'] and runs['$strategy']['outcome'] == 'clean' and len(runs['$strategy']['steps_table']) == 8"
  json "all(s['drift'] == 0 and s['synced'] for s in runs['$strategy']['steps_table'])"
done
json 'first["proof"]["cured"] and first["prescription"]["strategy"] in ("ddp-find-unused", "ddp-static-graph")'
json '"ms per step" in first["proof"]["text"] and "here: " in first["proof"]["text"]'

doctor 1 run "$EXAMPLES/orphan.pt"
printed 'DDP201 unused-parameters: error, certain; ranks 0 and 1, from step 1'
printed 'orphan.weight \(index 0\) and orphan.bias \(index 1\)'
printed '2 \| raised in step 2 \(forward\): Expected to have finished reduction in the prior iteration'
[ "$(tail -n 1 "$work/out")" = "Verdict: sick: DDP201 unused-parameters" ] || fail "$last: the verdict is not the last line"
