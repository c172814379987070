# SPDX-License-Identifier: BSD-3-Clause
# ddp-doctor parity of TorchScript programs and of programs in C++.
. "$(dirname "$0")/lib.sh"
cd "$work" || exit 1
same='healthy: gradients of 2 ranks are those of one process'

# TorchScript: the batches are those of batch(), whatever the optimizer and the number of micro-batches are.
doctor 0 parity "$EXAMPLES/tied.pt"
printed "^Verdict: $same: 4 of 4 parameters within rounding in 3 steps"
doctor 0 parity "$EXAMPLES/curriculum.pt" --accumulate 2 --optimizer adam --steps 2 --format json
json '[step["step"] for step in r["parity"]["steps"]] == [1, 2] and all(step["equal"] == step["parameters"] == 2 for step in r["parity"]["steps"])'
doctor 0 parity "$FIXTURES/bare.pt" --input 'float32[8,32]' --nproc-per-node 3
printed 'gradients of 3 ranks are those of one process'

# The mean over the ranks of means over unequal numbers of tokens.
doctor 0 run "$EXAMPLES/token_mean.pt"
doctor 1 parity "$EXAMPLES/token_mean.pt" --format json
json 'first["rule"] == "DDP702" and first["evidence"]["proportional_to"] == "batch[1] that are not -100" and len(r["findings"]) == 1'
json 'all(abs(a - b) < 1e-4 for a, b in zip(first["evidence"]["one_process"], (10 / 24, 14 / 24)))'
doctor 1 parity "$EXAMPLES/cnn.pt" --format json
json 'first["rule"] == "DDP704" and first["certainty"] == "likely"'
doctor 0 parity "$EXAMPLES/cnn.pt" --ignore parity-forward

# What cannot be compared, and why.
doctor 3 parity "$EXAMPLES/training_step.pt"
printed 'its training_step\(\) makes the samples itself: export batch\(\), forward\(\) and loss\(\)'
doctor 1 parity "$EXAMPLES/orphan.pt" --format json
json 'first["rule"] == "DDP201" and "fix these first" in r["parity"]["inconclusive"]'
doctor 3 parity "$FIXTURES/functional_dropout.pt"
printed 'random numbers are drawn in the forward or the loss'
doctor 3 parity "$EXAMPLES/gpt.pt" --steps 1 --budget 1
printed 'of one step take [0-9]+ MiB; allow more with --budget'
doctor 2 parity "$EXAMPLES/tied.pt" -- --lr 1

# C++: examination.batch() says what the batches are.
doctor 0 parity -- "$PARITY_TRAINER"
printed "^Verdict: $same: 5 of 5 parameters within rounding in 3 steps"
doctor 0 parity --stop-after 20 -- "$PARITY_TRAINER"
printed "^Verdict: $same: 5 of 5"
doctor 0 parity -- "$PARITY_TRAINER" short
printed "^Verdict: $same: 5 of 5"
doctor 0 parity --nproc-per-node 4 --steps 1 -- "$PARITY_TRAINER" global-batch
printed 'gradients of 4 ranks are those of one process: 5 of 5'
doctor 1 parity --format json -- "$PARITY_TRAINER" scaled
json 'first["rule"] == "DDP701" and abs(first["evidence"]["k"] - 2) < 1e-3'
doctor 1 parity --format json -- "$PARITY_TRAINER" weighted
json 'first["rule"] == "DDP702" and first["evidence"]["proportional_to"] == "samples"'
doctor 3 parity -- "$PARITY_TRAINER" silent
printed 'call examination.batch\(\{...\}\) before each forward'
doctor 3 parity -- "$PARITY_TRAINER" two-optimizers
printed 'it has several optimizers'
doctor 0 run -- "$PARITY_TRAINER" short
doctor 0 parity -- "$EXAMPLES/cpp/gpt" --healthy
printed "^Verdict: $same"
