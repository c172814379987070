# SPDX-License-Identifier: BSD-3-Clause
"""What ctest leaves out at its end: why tests were skipped, and in CI (CI=true) which took longest. ctest runs it: tests/CMakeLists.txt.

usage: summary.py BUILD-FOLDER
"""
import os
import pathlib
import re
import sys

SLOWEST = 30
TEST = re.compile(r"^\d+/\d+ Test: (?P<name>.*)\n(?:.*\n)*?Output:\n-+\n(?P<output>(?:.*\n)*?)<end of output>\nTest time = +(?P<seconds>[\d.]+) sec", re.M)
# A test's own words, unittest's and GoogleTest's.
REASON = re.compile(r"^skipped: (.*)|\.\.\. skipped ['\"](.*)['\"]$|: Skipped\n(.*)", re.M)


def main():
    logs = pathlib.Path(sys.argv[1], "Testing/Temporary")
    log = next(file for file in (logs / "LastTest.log.tmp", logs / "LastTest.log") if file.exists())
    tests = [(match["name"], match["output"], float(match["seconds"])) for match in TEST.finditer(log.read_text(errors="replace"))]
    skipped = [(name, next(filter(None, reason.groups()))) for name, output, _ in tests for reason in [REASON.search(output)] if reason]
    if skipped:
        print("\nSkipped, and why:")
        for name, reason in sorted(skipped):
            print(f"  {name}: {reason}")
    if os.environ.get("CI") == "true":
        print(f"\nThe slowest of {len(tests)} tests, {sum(seconds for *_, seconds in tests):.0f} s one after another:")
        for name, _, seconds in sorted(tests, key=lambda test: -test[2])[:SLOWEST]:
            print(f"{seconds:8.1f} s  {name}")


if __name__ == "__main__":
    main()
