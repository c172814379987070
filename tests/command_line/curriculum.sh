# SPDX-License-Identifier: BSD-3-Clause
# The curriculum trainer: bypassing the wrapper never synchronizes and drifts ever further; everything else is exact.
. "$(dirname "$0")/lib.sh"
doctor 1 run "$EXAMPLES/curriculum.pt" --strategies bypass,allreduce-each,allreduce-flat,ddp --format json
json 'first["rule"] == "DDP101" and len(r["findings"]) == 1 and set(found) == {"DDP101", "DDP102", "DDP301"}'
json 'first["first_step"] == 1 and first["ranks"] == [0, 1] and first["proof"]["cured"]'
json 'not any(s["synced"] for s in runs["bypass"]["steps_table"])'
json '[s["drift"] for s in runs["bypass"]["steps_table"]][-1] > runs["bypass"]["steps_table"][0]["drift"] > 0'
for strategy in allreduce-each allreduce-flat ddp; do
  json "all(s['drift'] == 0 and s['synced'] for s in runs['$strategy']['steps_table']) and runs['$strategy']['clean']"
  json "runs['$strategy']['mean_check']['step'] == 1 and runs['$strategy']['mean_check']['relative_error'] < 1e-6"
done
json 'runs["bypass"]["mean_check"]["relative_error"] > 1e-3'

doctor 0 run "$EXAMPLES/curriculum.pt"
printed '^ *ddp \|.* \| +([0-9.]+e-(0[7-9]|[1-9][0-9])|0.0e\+00) \| +clean$'
printed '^grad error: of the synchronized gradient at step 1, relative to the mean of the local ones$'
