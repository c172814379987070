# SPDX-License-Identifier: BSD-3-Clause
# SARIF reports, sick and healthy, satisfy the official schema.
. "$(dirname "$0")/lib.sh"
need_torch
[ -f "$SCHEMAS/sarif-schema-2.1.0.json" ] || lacks "official schema of SARIF (scripts/sarif-schema $SCHEMAS)"
for run in "1 $here/../corpus/ddp201_unused_parameters.py -- bug" "0 $here/train.py"; do
  # shellcheck disable=SC2086
  doctor ${run%% *} check --format sarif ${run#* }
  "$python" "$here/valid.py" sarif_schema "$work/out" 2>"$work/err" || fail "$last: not SARIF 2.1.0"
done
