# SPDX-License-Identifier: BSD-3-Clause
# A verdict covers what was compared, and names what was not.
. "$(dirname "$0")/lib.sh"
need_torch
cd "$work" || exit 1
cp "$here/covered.py" .

doctor 0 run covered.py -- teacher
printed '^Verdict: healthy: 2 ranks x 10 steps, 5 parameters compared and bit-identical, 5 tensors not compared'
printed 'not compared: 5 tensors of Net, which no wrapper and no optimizer holds'
doctor 0 run covered.py -- ignored
printed '^Verdict: healthy: .*, 4 parameters compared and bit-identical, 1 tensor not compared'
printed 'not compared: 1 parameter of which each rank has its own \(table.weight\)'
doctor 3 run covered.py -- zero
printed '^Verdict: inconclusive: every gradient was zero in every step'
doctor 3 run covered.py -- spare
printed '^Verdict: inconclusive: no parameter of optimizer 1 \(SGD\) had a gradient in any step'
if "$PYTHON_TORCH" -c 'import torch, sys; sys.exit(int(torch.__version__.split(".")[0]) < 2)'; then
  doctor 0 run covered.py -- delayed
  printed '^Verdict: healthy: 2 ranks x 10 steps, replicas bit-identical'
fi
