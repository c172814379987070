# SPDX-License-Identifier: BSD-3-Clause
# The HTML reports of four programs in real Chromium: at two widths, in both colour schemes, with scripts and without.
. "$(dirname "$0")/lib.sh"
need_torch
chromium=$("$python" -B -c 'import sys; sys.path.insert(0, sys.argv[1]); import browser; print(browser.find() or "")' "$here/../../scripts")
[ -n "$chromium" ] || lacks "Chromium (apt-get install --no-install-recommends chromium fonts-dejavu-core)"

last="scripts/example-reports"
"$here/../../scripts/example-reports" "$DDP_DOCTOR" "$work/reports" "$PYTHON_TORCH" >"$work/out" 2>"$work/err" || fail "$last"
for name in healthy bypass orphan stall; do
  "$python" "$here/valid.py" html "$work/reports/$name.html" 2>"$work/err" || fail "$name.html: no valid HTML"
done
grep -q '<h1 class="healthy">healthy' "$work/reports/healthy.html" || fail "healthy.html: another verdict"
grep -q 'DDP101' "$work/reports/bypass.html" && grep -q 'DDP201' "$work/reports/orphan.html" && grep -q 'DDP501' "$work/reports/stall.html" ||
  fail "$last: other findings"
"$python" "$here/look_at_html.py" "$work/reports"/*.html >"$work/out" 2>"$work/err" || fail "$last: not as it should look"
rm -rf "$work/reports"
