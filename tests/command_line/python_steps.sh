# SPDX-License-Identifier: BSD-3-Clause
# How much is examined: --steps ends the examination, --stop-after the program, --fail-fast at the first error.
. "$(dirname "$0")/lib.sh"
need_torch
# The program goes on: to its end, or to its own failure.
doctor 0 run --steps 3 "$here/train.py" --format json -- --steps 30
json 'r["verdict"] == "healthy" and [s["step"] for s in runs["as-is"]["steps_table"]] == [1, 2, 3]'
json 'any("first 3 steps (--steps)" in note for note in runs["as-is"]["notes"])'
json '[e["code"] for e in runs["as-is"]["exit"]["ranks"]] == [0, 0] and runs["as-is"]["exit"]["ending"] == "own"'
# A program that has no optimizer of torch's.
doctor 0 run --steps 3 "$here/../programs/modes_and_own_updates.py" --format json
json 'r["verdict"] == "healthy" and [s["step"] for s in runs["as-is"]["steps_table"]] == [1, 2, 3]'
json 'not any("the probe failed" in note for note in runs["as-is"]["notes"])'
doctor 1 run --steps 1 "$here/train.py" --format json -- --steps 30 --end raise
json 'found == ["DDP504"]'

# Ranks that were ended did not crash.
doctor 0 check --stop-after 5 "$here/train.py" --format json -- --steps 100000 --sleep 0.01
json 'r["verdict"] == "healthy" and [s["step"] for s in runs["as-is"]["steps_table"]] == [1, 2, 3, 4, 5] and found == []'
json 'runs["as-is"]["exit"]["ending"] == "stop-after" and any("--stop-after" in note for note in runs["as-is"]["notes"])'
doctor 0 run --stop-after 5 --format json -- "$here/start_ranks" "$PYTHON_TORCH" "$here/train.py" --steps 100000 --sleep 0.01
json 'r["verdict"] == "healthy" and len(runs["as-is"]["steps_table"]) == 5'

doctor 1 run --fail-fast "$here/train.py" --format json -- --steps 100000 --sleep 0.02 --bypass
json 'found == ["DDP101", "DDP102", "DDP301"] and runs["as-is"]["exit"]["ending"] == "fail-fast"'
said '^ddp-doctor: DDP101 wrapper-bypassed'
doctor 0 run --fail-fast --ignore DDP101,DDP102,DDP301 "$here/train.py" --format json -- --steps 60 --sleep 0.05 --bypass
json 'runs["as-is"]["exit"]["ending"] == "own"'
