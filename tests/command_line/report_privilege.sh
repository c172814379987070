# SPDX-License-Identifier: BSD-3-Clause
# `report` on a folder that somebody else made: it reads that folder, writes the reports that were asked for, and does nothing else.
. "$(dirname "$0")/lib.sh"
command -v strace >"$work/out" || lacks strace
cd "$work" || exit 1
strace -o trace true 2>"$work/err" || not_permitted "strace: $(head -n 1 "$work/err")"
doctor 1 run "$EXAMPLES/orphan.pt" --strategies ddp --out run
chmod 700 run run/* || fail "the run's folder cannot be changed"

# Paths in the record that lead elsewhere, and names that a shell or a browser would execute.
echo 'SECRET=1' >secret.py
"$python" - <<'PY'
import json, pathlib, sqlite3

folder = next(pathlib.Path("run").iterdir())
run = json.loads((folder / "run.json").read_text())
run["program"] = "../../secret.py; touch executed; $(touch executed) <script>alert(1)</script>"
(folder / "run.json").write_text(json.dumps(run))
for rank in 0, 1:
    with sqlite3.connect(folder / f"rank-{rank:05}.sqlite") as record:
        columns = [column[1] for column in record.execute("PRAGMA table_info(fact)")]
        assert columns, "no table of facts"
        record.execute("UPDATE fact SET value = replace(value, '.py', '/../../secret.py')")
PY
strace -f -o trace -e trace=file,network,process "$DDP_DOCTOR" report run --report r.html --report r.json >"$work/out" 2>"$work/err"
[ $? = 1 ] || fail "report run: not exit code 1"
"$python" - <<'PY' || fail "report: more than it was asked for"
import pathlib, re, sys

READ = re.compile(r"^(run(/|$)|r\.(html|json)|/lib/|/usr/lib/|/lib64/|/etc/ld\.so|/proc/self/|/sys/|/usr/share/|\.$)")
asked = {"r.html", "r.json"}
here = str(pathlib.Path.cwd())
wrong = []
for line in open("trace", errors="replace"):
    call = re.match(r"\d+ +(\w+)\((.*)", line)
    if not call or "ENOENT" in line:
        continue
    name, rest = call.groups()
    path = re.search(r'"([^"]*)"', rest)
    path = path.group(1).removeprefix(here + "/") if path else ""
    if name in ("socket", "connect", "bind") or (name in ("execve", "fork", "vfork") and "report" not in rest):
        wrong.append(line)
    elif name in ("open", "openat", "creat") and re.search("O_WRONLY|O_RDWR|O_CREAT", rest):
        if not any(path == each or path.startswith(each + ".") for each in asked):
            wrong.append(line)
    elif name in ("open", "openat") and path and not READ.match(path):
        wrong.append(line)
    elif name in ("unlink", "rename", "renameat2", "mkdir", "chmod", "symlink", "link") and not any(each in rest for each in asked):
        wrong.append(line)
print("".join(wrong), end="", file=sys.stderr)
sys.exit(bool(wrong))
PY
[ ! -e executed ] || fail "a name in the record was executed"
! grep -q 'SECRET' r.html r.json "$work/out" || fail "a file that the record names was read"
! grep -q '<script>alert' r.html || fail "a name in the record became a script of the page"
