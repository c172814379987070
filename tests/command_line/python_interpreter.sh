# SPDX-License-Identifier: BSD-3-Clause
# Which Python runs train.py: the first that has torch, found without importing it; and the message if there is none.
. "$(dirname "$0")/lib.sh"
need_torch
unset DDP_DOCTOR_PYTHON
# Pythons by their looks: $work/NAME answers like one that has the torch of version $2, or none.
pretend() {
  mkdir -p "$work/$1"
  printf '#!/bin/sh\n%s\n' "$2" >"$work/$1/python3"
  chmod +x "$work/$1/python3"
  cp "$work/$1/python3" "$work/$1/python"
}
pretend bare 'echo 3.12.1'
pretend broken 'echo "no module named encodings" >&2; exit 1'
pretend first 'case "$1" in -c) echo 3.12.1; echo 2.9.0;; *) echo "first ran $*";; esac'
mkdir "$work/venv"
ln -s "$work/first" "$work/venv/bin"
echo 'print("hello")' >"$work/train.py"

doctor 3 run --python "$work/first/python3" "$work/train.py"; said 'first ran .*train.py'
PATH=$work/first:$PATH doctor 3 run "$work/train.py"; said 'first ran .*train.py'
VIRTUAL_ENV=$work/venv PATH=$work/bare:$PATH doctor 3 run "$work/train.py" -- --lr 1; said 'first ran .*train.py --lr 1'
DDP_DOCTOR_PYTHON=$work/first/python3 doctor 3 run "$work/train.py"; said 'first ran .*train.py'
(cd "$work" && doctor 3 run --python first/python3 train.py && said 'first ran train.py') || exit 1

# An explicit one is never replaced.
doctor 2 run --python "$work/bare/python3" "$work/train.py"; complained 'bare/python3: Python 3.12.1 has no torch; give a Python that has torch'
doctor 2 run --python "$work/nowhere/python3" "$work/train.py"; complained 'nowhere/python3: is missing or not executable'
doctor 2 run --python "$work/broken/python3" "$work/train.py"; complained 'failed: no module named encodings'
doctor 2 run --python true "$work/train.py"; complained 'is not a Python'

# The system's own Python is the last resort.
if [ -z "$(/usr/bin/python3 -c 'import importlib.util as u; print(u.find_spec("torch") or "")')" ]; then
  VIRTUAL_ENV=$work/broken PATH=$work/bare:$PATH doctor 2 run "$work/train.py"
  complained 'no Python with torch was found'
  said 'bare/python3\): Python 3.12.1 has no torch'
  said 'activate its environment'
else
  VIRTUAL_ENV=$work/gone PATH=$work/bare:$PATH doctor 3 run "$work/train.py"; said 'hello'
  said 'the active environment, .*/gone: is missing or not executable; the program runs with '
fi

# A folder named torch where one stands is not torch.
mkdir -p "$work/elsewhere/torch"
: >"$work/elsewhere/torch/__init__.py"
(cd "$work/elsewhere" && PATH=$work/bare:$PATH doctor 2 run --python "$work/bare/python3" "$work/train.py") || exit 1

VIRTUAL_ENV=$work/venv PATH=$work/bare:$PATH doctor 0 env
printed 'venv/bin/python: Python 3.12.1, torch 2.9.0'
printed 'bare/python3: Python 3.12.1 has no torch'
DDP_DOCTOR_PYTHON=$work/first/python3 doctor 0 env; printed '^DDP_DOCTOR_PYTHON +.*first/python3: Python 3.12.1, torch 2.9.0'
DDP_DOCTOR_PYTHON=$work/nowhere doctor 0 env; printed '^DDP_DOCTOR_PYTHON +.*nowhere: is missing or not executable'
DDP_DOCTOR_PYTHON=$work/nowhere doctor 2 run "$work/train.py"; complained 'DDP_DOCTOR_PYTHON=.*nowhere: is missing'

# A command starts its own.
DDP_DOCTOR_PYTHON=$PYTHON_TORCH doctor 2 run -- "$python" -ISc "import sys; sys.path = []; raise ImportError(\"No module named 'torch'\")"
complained "ended with exit status 1: .*No module named 'torch'; a command starts its own Python.*: ddp-doctor run -- $PYTHON_TORCH -ISc "
"$PYTHON_TORCH" -c 'import torch' || exit 0
PATH=$(dirname "$PYTHON_TORCH"):$PATH doctor 0 env && printed ': Python 3.*, torch [12]'

# What --python names may start the rank as its child: that process is asked where it hangs.
printf '#!/bin/sh\n"%s" "$@"\nexit $?\n' "$PYTHON_TORCH" >"$work/around"
chmod +x "$work/around"
doctor 1 run --python "$work/around" --timeout 10 "$here/../corpus/ddp501_stalled_rank.py" -- bug; printed 'at .*/ddp501_stalled_rank.py:42'
