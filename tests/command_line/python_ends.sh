# SPDX-License-Identifier: BSD-3-Clause
# However a Python program ends, the report names the rank and is complete up to that point.
. "$(dirname "$0")/lib.sh"
need_torch
train() { doctor "$1" run "$here/train.py" --format json -- --end "$2"; }
train 1 exit3; json 'first["rule"] == "DDP504" and first["ranks"] == [1] and "status 3" in first["message"]'
json 'len(runs["as-is"]["steps_table"]) >= 2'
train 1 _exit; json 'first["rule"] == "DDP504" and first["ranks"] == [1] and "status 4" in first["message"]'
json 'len(runs["as-is"]["steps_table"]) >= 2'
train 1 kill; json 'first["rule"] == "DDP504" and first["ranks"] == [1] and "signal 9" in first["message"]'
train 1 raise; json 'first["rule"] == "DDP504" and first["ranks"] == [1] and "ValueError: the data is damaged" in first["message"]'
said '^\[rank 1\] .*ValueError: the data is damaged'
train 0 close; json 'r["verdict"] == "healthy" and len(runs["as-is"]["steps_table"]) == 4'

# Nothing was trained: that is no finding, but nothing could be examined.
echo 'def f(:' >"$work/train.py"
doctor 2 run "$work/train.py"; complained 'rank [01] ended with exit status 1 before torch.distributed was initialized: SyntaxError'
echo 'import torch, nowhere' >"$work/train.py"
doctor 2 run "$work/train.py" --out "$work/run"; complained "ModuleNotFoundError: No module named 'nowhere'"
doctor 2 report "$work/run"; complained "ModuleNotFoundError: No module named 'nowhere'"
echo 'import time; time.sleep(60)' >"$work/train.py"
doctor 2 run "$work/train.py" --timeout 1; complained 'no progress for 1 s, .*--timeout'

# Leaving at once is an end like any other, if the status says so.
cat >"$work/train.py" <<PY
import os, runpy, torch.distributed
torch.distributed.destroy_process_group = lambda: None
runpy.run_path("$here/train.py", run_name="__main__")
if os.fork() == 0:
    os._exit(0)
os.wait()
os._exit(0)
PY
doctor 0 run "$work/train.py" --format json
json 'r["verdict"] == "healthy" and len(runs["as-is"]["steps_table"]) == 4'

# A rank that cannot leave the interpreter has finished all the same.
cat >"$work/train.py" <<PY
import builtins, os, runpy, time
runpy.run_path("$here/train.py", run_name="__main__")
class Hangs:
    def __del__(self):
        time.sleep(100)
if os.environ["RANK"] == "1":
    builtins.hangs = Hangs()
PY
doctor 0 run "$work/train.py" --format json
json 'r["verdict"] == "healthy" and any("rank 1 had finished, but its process did not exit" in n for n in runs["as-is"]["notes"])'
