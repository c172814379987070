# SPDX-License-Identifier: BSD-3-Clause
# Real reports, sick and healthy, compared and fixed, satisfy docs/report.schema.json.
. "$(dirname "$0")/lib.sh"
schema=$(dirname "$0")/../../docs/report.schema.json
satisfies() {
  last="ddp-doctor $*"
  timeout 120 "$DDP_DOCTOR" "$@" --steps 4 --timeout 5 --format json >"$work/out" 2>"$work/err"
  "$python" - "$schema" "$work/out" <<'PY' || fail "$last: the report does not satisfy the schema"
import json, sys, jsonschema
schema, report = (json.load(open(name)) for name in sys.argv[1:])
jsonschema.Draft7Validator.check_schema(schema)
jsonschema.Draft7Validator(schema).validate(report)
PY
}
for program in orphan curriculum conditional rank_crash; do satisfies run "$EXAMPLES/$program.pt" --strategies all; done
satisfies compare "$EXAMPLES/curriculum.pt@bypass,ddp" "$EXAMPLES/orphan.pt" --repeats 1
satisfies run "$EXAMPLES/orphan.pt" --fix --repeats 3
