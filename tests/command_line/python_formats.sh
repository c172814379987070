# SPDX-License-Identifier: BSD-3-Clause
# What servers read: each format is valid by its reader's rules, names the user's file and line, and has nothing that varies.
. "$(dirname "$0")/lib.sh"
need_torch
unset GITHUB_STEP_SUMMARY
valid() { "$python" "$here/valid.py" "$1" "$2" 2>"$work/err" || fail "$last: no valid $1"; }

# A repository whose program lies in a folder below its root.
mkdir -p "$work/repository/.git" "$work/repository/src, new"
cp "$here/../corpus/ddp101_wrapper_bypassed.py" "$work/repository/src, new/train.py"
cd "$work/repository/src, new" || exit 1
line=$(grep -n '# <- here' train.py | cut -d: -f1)
doctor 1 check train.py --out "$work/sick" --report "$work/r.json" --report "$work/r.xml" --report "$work/r.sarif" --report "$work/r.md" \
  --report "$work/r.prom" --report "$work/r.html" --report "$work/r.txt" --report "gitlab=$work/quality.json" --report "github=$work/commands" -- bug
printed '^Verdict: sick: DDP101 wrapper-bypassed'; not_printed '^Gradient norm'
valid json "$work/r.json"; valid junit "$work/r.xml"; valid sarif "$work/r.sarif"; valid prometheus "$work/r.prom"; valid html "$work/r.html"; valid gitlab "$work/quality.json"; valid github "$work/commands"
grep -q '^Gradient norm per rank' "$work/r.txt" && grep -q 'DDP101' "$work/r.md" || fail "$last: the whole report is not in its files"
grep -qF "::error file=src%2C new/train.py,line=$line,title=DDP101 wrapper-bypassed::" "$work/commands" || fail "$last: no annotation at line $line"
"$python" - "$work" "$line" <<'PY' || fail "$last: not at the user's line"
import json, sys
work, line = sys.argv[1], int(sys.argv[2])
result = json.load(open(work + "/r.sarif"))["runs"][0]["results"][0]
place = result["locations"][0]["physicalLocation"]
assert result["ruleId"] == "DDP101" and result["level"] == "error", result
assert place["artifactLocation"] == {"uri": "src%2C%20new/train.py", "uriBaseId": "%SRCROOT%"} and place["region"]["startLine"] == line, place
issue = json.load(open(work + "/quality.json"))[0]
assert issue["location"] == {"path": "src, new/train.py", "lines": {"begin": line}} and issue["severity"] == "critical", issue
PY
grep -q '<failure message="In 8 of 8 steps' "$work/r.xml" || fail "$last: no failure in JUnit"
grep -q '^ddp_doctor_findings{program="src, new/train.py",strategy="as-is",rule="DDP101",name="wrapper-bypassed"} 1$' "$work/r.prom" || fail "$last: no finding in Prometheus"

# The fingerprint stays while lines move, and the report is the same in a second run, but for times in JSON.
fingerprints() { "$python" -c 'import json, sys; print([r["partialFingerprints"] for r in json.load(open(sys.argv[1]))["runs"][0]["results"]])' "$1"; }
before=$(fingerprints "$work/r.sarif")
mkdir "$work/again"
doctor 1 check train.py --report "$work/again/r.json" --report "$work/again/r.xml" --report "$work/again/r.sarif" --report "$work/again/r.prom" \
  --report "gitlab=$work/again/quality.json" --report "github=$work/again/commands" -- bug
mv "$work/out" "$work/again/out"
for file in r.xml r.sarif r.prom quality.json commands; do cmp -s "$work/$file" "$work/again/$file" || fail "$last: $file differs from the first run's"; done
"$python" - "$work/r.json" "$work/again/r.json" <<'PY' || fail "$last: JSON differs in more than times"
import json, sys
TIMES = {"milliseconds", "step_time", "milliseconds_per_step", "cost"}
def timeless(value):
    if isinstance(value, dict):
        return {key: timeless(entry) for key, entry in value.items() if key not in TIMES and not key.endswith("_time") and "time" not in key}
    return [timeless(entry) for entry in value] if isinstance(value, list) else value
a, b = (timeless(json.load(open(name))) for name in sys.argv[1:])
def parts(a, b, path="r"):
    if isinstance(a, dict) and isinstance(b, dict):
        return [p for k in a.keys() | b.keys() for p in parts(a.get(k), b.get(k), f"{path}.{k}")]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [p for i, (x, y) in enumerate(zip(a, b)) for p in parts(x, y, f"{path}[{i}]")]
    return [] if a == b else [(path, a, b)]
assert a == b, parts(a, b)
PY
sed -i '1i # A line more.' train.py
doctor 1 check train.py --report "$work/r.sarif" -- bug
cmp -s "$work/out" "$work/again/out" && fail "$last: the line did not move"
[ "$(fingerprints "$work/r.sarif")" = "$before" ] || fail "$last: the fingerprint moved with the line"

# On stdout, and again from the records; GitHub's step summary is appended to.
for format in $(formats); do
  doctor 1 report "$work/sick" --format "$format"
  cp "$work/out" "$work/file"; valid "$format" "$work/file"
done
echo 'What came before.' >"$work/summary"
GITHUB_STEP_SUMMARY=$work/summary doctor 1 report "$work/sick" --format github
[ "$(head -1 "$work/summary")" = 'What came before.' ] && grep -q '^### ddp-doctor: sick: DDP101' "$work/summary" || fail "$last: no step summary"
doctor 2 report "$work/sick" --report "$work/r.doc"; complained 'use .txt, .json, .*, or name it'
