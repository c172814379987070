# One examination, every way to look at it: text, JSON, files, again from the records, only the verdict.
. "$(dirname "$0")/lib.sh"
doctor 1 run "$EXAMPLES/orphan.pt" --out "$work/run" --report "$work/r.json" --report "$work/r.txt"
printed '^Table 1 - gradient norm per rank'
printed '^Table 2 - weight drift'
printed '^find_unused_parameters: 0'
printed '^num_parameter_tensors: 4'
cmp -s "$work/out" "$work/r.txt" || fail "$last: --report r.txt differs from stdout"
[ "$(stat -c %a "$work/run")" = 700 ] || fail "the run's folder is not private"
mv "$work/r.json" "$work/first.json"
doctor 1 report "$work/run" --format json
cmp -s "$work/out" "$work/first.json" || fail "$last: differs from what the run reported"
doctor 1 report "$work/run" -q
[ "$(cat "$work/out")" = "Verdict: sick: DDP201 unused-parameters" ] || fail "$last: more than the verdict"
doctor 0 report "$work/run" -q --fail-on never
doctor 2 report "$work/run" --report "$work/r.doc"
complained 'use .json or .txt'
