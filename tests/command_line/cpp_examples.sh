# SPDX-License-Identifier: BSD-3-Clause
# Trainers in C++, as their authors wrote them: each diagnosed by its own bug, and healthy once fixed.
. "$(dirname "$0")/lib.sh"
trainers=$EXAMPLES/cpp

# The wrapper bypassed from the third epoch on: three batches an epoch.
doctor 1 run --format json -- "$trainers/curriculum"
json 'r["world_size"] == 2 and first["rule"] == "DDP101" and len(r["findings"]) == 1'
json '"ddp(input)" in first["prescription"]["text"]'  # as programs in C++ write it
json 'first["first_step"] == 7 and first["ranks"] == [0, 1] and first["evidence"]["steps_seen"] == 12'
said '\[rank 1\] rank 1: loss'

# Two optimizers; the critic's gradients are never averaged.
doctor 1 run --format json -- "$trainers/actor_critic"
json 'first["rule"] == "DDP104" and first["first_step"] == 2 and len(r["findings"]) == 1'
json '{p["name"] for p in first["parameters"]} == {"critic:" + name for name in ("hidden.weight", "hidden.bias", "output.weight", "output.bias")}'

# Ten micro-batches an epoch, four a step: the third step of an epoch is never synchronized.
doctor 1 run --format json -- "$trainers/gpt"
json 'first["rule"] == "DDP103" and first["first_step"] == 3 and len(r["findings"]) == 1'

# The norm's gradients are never added up over the ranks that share the sequence.
doctor 1 run --format json -- "$trainers/tensor_parallel"
json 'first["rule"] == "DDP114" and first["certainty"] == "certain" and first["first_step"] == 1 and len(r["findings"]) == 1'
json '{p["name"] for p in first["parameters"]} == {"norm.weight", "norm.bias"} and "tp {0, 1}" in first["message"]'

# Fixed, with another number of ranks too.
for trainer in curriculum actor_critic gpt tensor_parallel; do
  doctor 0 run --format json -- "$trainers/$trainer" --healthy
  json 'r["verdict"] == "healthy" and not r["findings"]'
done
doctor 0 run --nproc-per-node 4 --format json -- "$trainers/tensor_parallel" --healthy
json 'r["world_size"] == 4 and r["verdict"] == "healthy"'
doctor 0 run --nproc-per-node 3 --format json -- "$trainers/gpt" --healthy
json 'r["world_size"] == 3 and r["verdict"] == "healthy"'
