# Real reports, sick and healthy, satisfy docs/report.schema.json.
. "$(dirname "$0")/lib.sh"
schema=$(dirname "$0")/../../docs/report.schema.json
for program in orphan curriculum conditional rank_crash; do
  timeout 120 "$DDP_DOCTOR" run "$EXAMPLES/$program.pt" --strategies all --steps 4 --timeout 5 --format json >"$work/out" 2>"$work/err"
  last="ddp-doctor run $program.pt"
  "$python" - "$schema" "$work/out" <<'PY' || fail "$last: the report does not satisfy the schema"
import json, sys, jsonschema
schema, report = (json.load(open(name)) for name in sys.argv[1:])
jsonschema.Draft7Validator.check_schema(schema)
jsonschema.Draft7Validator(schema).validate(report)
PY
done
