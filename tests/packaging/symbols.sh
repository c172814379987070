# SPDX-License-Identifier: BSD-3-Clause
# spdlog, and what it brings, stays in the tool: no library that a user's program links or loads has a symbol of it.
# usage: symbols.sh BUILD
set -euo pipefail
libraries=$(find "$1" -name 'libddp_doctor_*.a' ! -name libddp_doctor_tool.a -o -name 'libddp*.so*' -type f)
for expected in libddp_doctor_digest.a libddp_doctor_record.a libddp_doctor_report.a .so; do
  [[ $libraries == *$expected* ]] || { echo "FAILED: no $expected among: $libraries"; exit 1; }
done
# The tool shows that the search finds something.
nm "$(find "$1" -name libddp_doctor_tool.a)" 2>/dev/null | grep spdlog >/dev/null || { echo "FAILED: the tool has no symbol of spdlog either"; exit 1; }
for library in $libraries; do
  symbols=$(nm "$library" 2>/dev/null; nm -D "$library" 2>/dev/null || true)
  ! grep spdlog <<<"$symbols" || { echo "FAILED: $library has symbols of spdlog"; exit 1; }
done
