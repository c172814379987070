# SPDX-License-Identifier: BSD-3-Clause
# ddp-doctor run -- COMMAND: whatever the command starts, at any depth, is examined as it is.
. "$(dirname "$0")/lib.sh"
need_torch
doctor 0 run --format json -- "$here/start_ranks" "$PYTHON_TORCH" "$here/train.py" --steps 3 --end none
json 'r["verdict"] == "healthy" and r["world_size"] == 2 and len(runs["as-is"]["steps_table"]) == 3'
json '[(e["rank"], e["kind"], e["code"]) for e in runs["as-is"]["exit"]["ranks"]] == [(0, "exited", 0), (1, "exited", 0)]'
# Not at the start of a line: two ranks that write unbuffered may share one.
said 'rank 1 of 2 has'

# A script without a first line, a relative path, a command by its name.
sed 1d "$here/start_ranks" >"$work/plain"
chmod +x "$work/plain"
(cd "$work" && doctor 0 run -- ./plain "$PYTHON_TORCH" "$here/train.py") || exit 1
doctor 0 run -- bash "$here/start_ranks" "$PYTHON_TORCH" "$here/train.py"

# Ranks that fall, although only their launcher gets to know how.
launch() { doctor 1 run --format json -- "$here/start_ranks" "$PYTHON_TORCH" "$here/train.py" --end "$1"; }
launch exit3; json 'first["rule"] == "DDP504" and first["ranks"] == [1] and "status 3" in first["message"]'
launch _exit; json 'first["rule"] == "DDP504" and first["ranks"] == [1] and "status 4" in first["message"]'
launch kill; json 'first["rule"] == "DDP504" and first["ranks"] == [1] and "signal 9" in first["message"]'
launch raise; json 'first["rule"] == "DDP504" and first["ranks"] == [1] and "the data is damaged" in first["message"]'

# Commands that are none, or come to nothing.
doctor 2 run -- no-such-command; complained 'no-such-command: no such command'
echo true >"$work/file"; doctor 2 run -- "$work/file"; complained 'is not executable'
doctor 2 run -- sh -c 'echo out of luck; exit 7'; complained 'ended with exit status 7 before torch.distributed was initialized: out of luck'
doctor 2 run --; complained 'program is required'
doctor 3 run -- true; printed 'no Python process that imports torch was seen'

# With torchrun, where it works (Debian's does not).
torchrun="$PYTHON_TORCH -m torch.distributed.run --nproc_per_node 2"
if $torchrun --no_python true 2>/dev/null; then
  doctor 0 run --format json -- $torchrun "$here/train.py" --steps 3 --end none
  json 'r["verdict"] == "healthy" and r["world_size"] == 2 and len(runs["as-is"]["steps_table"]) == 3'
  doctor 1 run --format json -- $torchrun "$here/train.py" --end kill
  json 'first["rule"] == "DDP504" and first["ranks"] == [1] and "signal 9" in first["message"]'
fi
