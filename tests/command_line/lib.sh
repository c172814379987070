# SPDX-License-Identifier: BSD-3-Clause
# Sourced by the tests of this folder: each is one story about the command line, run with
#   DDP_DOCTOR=bin/ddp-doctor EXAMPLES=examples FIXTURES=tests/fixtures PYTHON_TORCH=python3 bash NAME.sh
# and fails with the command that failed and what it printed.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# The one that scripts/setup equips, whatever else stands first on PATH.
python=/usr/bin/python3
: "${DDP_DOCTOR:?path of ddp-doctor}" "${EXAMPLES:?folder of the example programs}" "${FIXTURES:?folder of the programs that only tests need}"
work=$(mktemp -d "${TMPDIR:-/tmp}/ddp-doctor-test-XXXXXX")
trap 'rm -rf "$work"' EXIT
export TMPDIR=$work/tmp
mkdir "$TMPDIR"

fail() {
  echo "FAILED: $*" >&2
  [ -s "$work/err" ] && { echo "--- stderr"; tail -c 3000 "$work/err"; } >&2
  [ -s "$work/out" ] && { echo "--- stdout"; head -c 6000 "$work/out"; } >&2
  exit 1
}

# lacks WHAT: skips the test. In CI, which installs all that the tests need, it fails.
lacks() {
  [ "${CI:-}" != true ] || fail "no $1, which CI must have"
  not_permitted "no $1"
}

# not_permitted WHAT: skips the test, in CI too: a container may lack privileges.
not_permitted() {
  echo "skipped: $1"
  exit 77
}

# doctor EXIT-CODE ARGS...: runs the tool, keeps $work/out and $work/err, insists on the exit code and on nothing left.
# `deadline` is in seconds.
doctor() {
  local want=$1 got=0
  shift
  last="ddp-doctor $*"
  timeout "${deadline:-120}" "$DDP_DOCTOR" "$@" >"$work/out" 2>"$work/err" || got=$?
  [ "$got" = "$want" ] || fail "$last: exit code $got, not $want"
  nothing_left
}

# Processes that a run of this test started, at any depth: all of them inherit the run's folder. The dead do not count.
alive() {
  local file
  for file in $(grep -lsaz "^DDP_DOCTOR_RECORD=$work/${1:-}" /proc/[0-9]*/environ); do
    file=${file#/proc/}
    echo "${file%/environ}"
  done
}

# The process of a rank that records into FOLDER: process_of_rank FOLDER RANK.
process_of_rank() {
  local file
  file=$(grep -ls "$1/rank-$(printf %05d "$2").progress" /proc/[0-9]*/maps)
  file=${file#/proc/}
  echo "${file%/maps}"
}

# No process of this test's runs is alive, and no temporary folder stays.
nothing_left() {
  local pids
  pids=$(pgrep -f "script-probe.*$work"; alive)
  [ -z "$pids" ] || fail "${last:-}: processes left: $pids"
  # torch leaves files of its own, such as those of ranks that were killed.
  [ -z "$(ls -A "$TMPDIR" | grep -vE '^(torch|pytorch-errorfile)')" ] || fail "${last:-}: left in the temporary folder: $(ls "$TMPDIR")"
}

printed() { grep -qE -- "$1" "$work/out" || fail "$last: stdout has no line like: $1"; }
not_printed() { ! grep -qE -- "$1" "$work/out" || fail "$last: stdout has a line like: $1"; }
said() { grep -qE -- "$1" "$work/err" || fail "$last: stderr has no line like: $1"; }
# An error message: one that names the problem, and no stack of C++ frames.
# All formats that the tool has.
formats() { "$DDP_DOCTOR" report --help | sed -n 's/^ *--format //p' | tr '|' ' '; }
complained() { said "$1"; ! grep -q "frame #" "$work/err" || fail "$last: a backtrace in the message"; }

# For the stories about programs in Python.
need_torch() {
  : "${PYTHON_TORCH:?a Python that has torch}"
  export DDP_DOCTOR_PYTHON=$PYTHON_TORCH
}

# json EXPRESSION: a Python expression over the report r in $work/out that must be true.
json() {
  "$python" - "$work/out" "$1" <<'PY' || fail "$last: not true of the report: $1"
import json, sys
r = json.load(open(sys.argv[1]))
runs = {run["strategy"]: run for run in r["runs"]}
def flat(findings):
    for f in findings:
        yield f
        yield from flat(f["consequences"])
found = [f["rule"] for f in flat(r["findings"])]
first = r["findings"][0] if r["findings"] else None
sys.exit(0 if eval(sys.argv[2]) else 1)
PY
}
