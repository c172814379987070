# SPDX-License-Identifier: BSD-3-Clause
# One examination, every way to look at it: text, JSON, files, again from the records, only the verdict.
. "$(dirname "$0")/lib.sh"
doctor 1 run "$EXAMPLES/orphan.pt" --out "$work/run" --report "$work/r.json" --report "$work/r.txt"
printed '^Gradient norm per rank at optimizer.step, and weight drift max.W_i - W_j.'
printed '(^| )find_unused_parameters: 0'
printed '(^| )num_parameter_tensors: 4'
[ "$(wc -l <"$work/out")" -le 60 ] || fail "$last: longer than a screen"
cmp -s "$work/out" "$work/r.txt" || fail "$last: --report r.txt differs from stdout"
[ "$(stat -c %a "$work/run")" = 700 ] || fail "the run's folder is not private"
mv "$work/r.json" "$work/first.json"
doctor 1 report "$work/run" --format json
cmp -s "$work/out" "$work/first.json" || fail "$last: differs from what the run reported"
doctor 1 report "$work/run" -q
[ "$(cat "$work/out")" = "Verdict: sick: DDP201 unused-parameters" ] || fail "$last: more than the verdict"
doctor 0 report "$work/run" -q --fail-on never
[ "$(cat "$work/out")" = "Verdict: sick: DDP201 unused-parameters" ] || fail "$last: --fail-on changed the verdict"
echo precious >"$work/r.doc"
doctor 2 report "$work/run" --report "$work/r.doc"
complained 'use .txt, .json, .md, .html, .xml, .sarif, .prom, or name it'
[ "$(cat "$work/r.doc")" = precious ] || fail "$last: touched a file that it refuses to write"
doctor 2 report "$work/run" --report "$work/nowhere/r.json"
complained 'cannot be written'

# Consequences stand alone where their cause is left out; a healthy word is never put on a run that was not.
doctor 1 report "$work/run" --ignore DDP201 --format json
json 'first["rule"] == "DDP102" and {"DDP301", "DDP504"} <= set(found)'
doctor 1 report "$work/run" --select DDP301 --format json
json 'found == ["DDP301"]'
doctor 3 report "$work/run" --select DDP207
not_printed 'bit-identical'

# A worker that does not start: said with its own words.
mkdir -p "$work/broken/libexec/ddp-doctor"
printf '#!/bin/sh\necho "error while loading shared libraries: libtorch_cpu.so" >&2\nexit 127\n' >"$work/broken/libexec/ddp-doctor/script-probe"
chmod +x "$work/broken/libexec/ddp-doctor/script-probe"
DDP_DOCTOR_HOME=$work/broken doctor 2 run "$EXAMPLES/orphan.pt" --strategies ddp
complained 'exited 127\): error while loading shared libraries'

# More ranks than files may be open at once.
python3 "$here/../../bench/diagnosis.py" --doctor "$DDP_DOCTOR" --ranks 64 --steps 60 --parameters 4 --bug 30 --out "$work/many" >/dev/null || exit 1
doctor 1 report "$work/many" --format json
json 'found[0] == "DDP104" and r["world_size"] == 64'
mv "$work/out" "$work/many.json"
(ulimit -n 24 && doctor 1 report "$work/many" --format json) || exit 1
cmp -s "$work/out" "$work/many.json" || fail "$last: not the same report"
