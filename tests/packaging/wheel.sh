# SPDX-License-Identifier: BSD-3-Clause
# The wheel in a fresh virtual environment with pip's newest torch; and nothing left after it was uninstalled.
# usage: wheel.sh [TORCH-VENV]      TORCH-VENV: an environment that scripts/torch-venv made: its torch is used, through a .pth, which saves
#                                   minutes and 6 GB; without one pip installs torch
. "$(dirname "$0")/lib.sh"
dist=$work/dist
"$source/scripts/wheel" "$dist" >"$work/out" 2>"$work/err" || fail "scripts/wheel"
wheel=$(echo "$dist"/*.whl)
newest=$(basename "$wheel" | grep -oE 'manylinux_2_[0-9]+' | sed 's/.*_//' | sort -n | tail -n 1)
[ "${newest:-99}" -le 28 ] || fail "$(basename "$wheel") needs a newer glibc than 2.28"
say "$(basename "$wheel"), $(($(stat -c %s "$wheel") / 1024)) KiB"

python=/usr/bin/python3
[ -x "$python" ] || python=python3
venv=$work/venv
if [ -n "${1:-}" ]; then
  "${1}/bin/python" -m venv "$venv"
  "${1}/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$(echo "$venv"/lib/python3*/site-packages)/torch.pth"
else
  "$source/scripts/torch-venv" "$venv" torch >/dev/null || fail "pip install torch"
fi
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check pytest || fail "pip install pytest"
# Files: pip leaves the empty folders of data. What Python compiles of its own and of torch is not ours.
files() { (cd "$venv" && find . ! -type d | grep -vE '/__pycache__/[^/]*$' | sort); (cd "$venv" && find . -path '*ddp?doctor*' | sort); }
files >"$work/before"
expect 0 "$venv/bin/python" -m pip install --no-index --disable-pip-version-check "$wheel"

# Not activated, from anywhere, and with nothing of ours on PATH.
cd "$work" && unset VIRTUAL_ENV DDP_DOCTOR_PYTHON DDP_DOCTOR_HOME
doctor() { expect "$1" "$venv/bin/ddp-doctor" "${@:2}"; }
doctor 0 --version; printed '^ddp-doctor [0-9.]+$'
"$venv/bin/python" -m pip show ddp-doctor | grep -x "Version: $(sed 's/.* //' "$work/out")" >/dev/null || fail "pip has another version"
expect 0 "$venv/bin/python" -m ddp_doctor --version; printed '^ddp-doctor [0-9.]+$'
torch=$("$venv/bin/python" -c 'import torch; print(torch.__version__)')
doctor 0 env; printed "beside ddp-doctor +$venv/bin/python: Python 3.*, torch ${torch//+/[+]}"
doctor 0 run "$source/tests/command_line/train.py" --format json
"$python" -c 'import json, sys; r = json.load(open(sys.argv[1])); assert r["verdict"] == "healthy" and r["runs"][0]["steps"] == 4, r' "$work/out" || fail "$last"
doctor 1 run "$source/tests/corpus/ddp101_wrapper_bypassed.py" -- bug; printed '^DDP101 wrapper-bypassed: error, certain; ranks 0 and 1, from step 1'
doctor 0 run -- "$venv/bin/python" -m torch.distributed.run --nproc_per_node=2 "$source/tests/command_line/train.py"; printed '^Verdict: healthy'
say "examines programs on torch $torch"

# What needs LibTorch is not in it.
"$venv/bin/python" -W ignore -c 'import torch; torch.jit.script(torch.nn.Linear(2, 2)).save("script.pt")' || fail "torch.jit"
doctor 2 run script.pt; said 'worker, which links LibTorch, and this installation has none'; said 'apt install ddp-doctor-worker'
doctor 2 demo orphan; said 'container image'

# The pytest plugin came, too.
cat >test_it.py <<PY
def test_script(ddp_doctor):
    assert ddp_doctor.run("$source/tests/command_line/train.py")["verdict"] == "healthy"
PY
expect 0 env PATH=/usr/bin:/bin PYTHONDONTWRITEBYTECODE=1 "$venv/bin/python" -m pytest -q test_it.py; printed '1 passed'

# It needs nothing but glibc.
for file in "$venv/bin/ddp-doctor" "$venv"/libexec/ddp-doctor/*.so; do
  expect 0 objdump -p "$file"
  [ -z "$(sed -n 's/^ *NEEDED *//p' "$work/out" | grep -vE '^(libc|libm|libdl|libpthread|ld-linux-x86-64|ld-linux-aarch64)\.so\.[0-9]$')" ] || fail "$file needs more than glibc"
done

expect 0 "$venv/bin/python" -m pip uninstall -q -y ddp-doctor
files >"$work/after"
diff "$work/before" "$work/after" >"$work/out" || fail "files differ from those before"
say "passed; no file left"
