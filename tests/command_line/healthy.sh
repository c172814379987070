# SPDX-License-Identifier: BSD-3-Clause
# Programs without a bug: nothing is found, whatever they are made of.
. "$(dirname "$0")/lib.sh"
for program in cnn gpt tied training_step frozen_backbone multi_forward; do
  steps=8
  [ $program = gpt ] && steps=3
  doctor 0 run "$EXAMPLES/$program.pt" --strategies ddp,allreduce-flat --steps $steps --format json
  json 'r["verdict"] == "healthy" and found == [] and all(s["drift"] == 0 and s["synced"] for run in r["runs"] for s in run["steps_table"])'
done
