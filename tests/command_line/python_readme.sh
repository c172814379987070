# SPDX-License-Identifier: BSD-3-Clause
# The report that README.md shows is what a terminal shows, up to figures. "..." stands for lines that it leaves out.
. "$(dirname "$0")/lib.sh"
need_torch
root=$here/../..
cp "$root/tests/corpus/ddp101_wrapper_bypassed.py" "$work/train.py"
last="run train.py in a terminal"
(cd "$work" && NO_COLOR=1 timeout 120 "$python" -c 'import pty, sys; pty.spawn(sys.argv[1:])' "$DDP_DOCTOR" run train.py -- bug) </dev/null >"$work/out" 2>"$work/err"
"$python" - "$root/README.md" "$work/out" <<'PY' || fail "README.md shows another report"
import re, sys
shown = re.search(r"<!-- report -->\n```console\n\$ ddp-doctor run train.py\n(.*?)```", open(sys.argv[1]).read(), re.S).group(1)
printed = open(sys.argv[2]).read().replace("\r\n", "\n")
figures = re.compile(r"\d+\.\d+(e[-+]\d+)?")
pattern = "".join("(.*\n)*?" if line == "..." else re.escape(figures.sub("N", line)) + "\n" for line in shown.splitlines())
sys.exit(0 if re.search(pattern, figures.sub("N", printed)) else 1)
PY
