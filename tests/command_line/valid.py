# SPDX-License-Identifier: BSD-3-Clause
"""valid.py FORMAT FILE: whether the file is valid in that format, as those who read it would have it. Says why not, and exits with 1."""
import json
import os
import pathlib
import re
import subprocess
import sys

import jsonschema

here = pathlib.Path(__file__).resolve().parent


def need(true, what):
    if not true:
        sys.exit(f"{sys.argv[2]}: {what}")


def check_json(text):
    schema = json.loads((here.parent.parent / "docs/report.schema.json").read_text())
    jsonschema.Draft7Validator(schema).validate(json.loads(text))


def check_sarif(text):
    log = json.loads(text)
    need(log["version"] == "2.1.0" and len(log["runs"]) == 1, "one run of 2.1.0")
    run = log["runs"][0]
    rules = run["tool"]["driver"]["rules"]
    prints = [result["partialFingerprints"]["ddpDoctorFinding/v1"] for result in run["results"]]
    need(len(set(prints)) == len(prints), "a fingerprint is there twice")
    for result in run["results"]:
        need(rules[result["ruleIndex"]]["id"] == result["ruleId"], "ruleIndex points elsewhere")
        place = result["locations"][0]["physicalLocation"]
        need(place["region"]["startLine"] >= 1, "a line below 1")
        need(not place["artifactLocation"]["uri"].startswith("/"), "an absolute path that is no URI")


def check_sarif_schema(text):
    """Against OASIS' schema, which scripts/sarif-schema downloads into $SCHEMAS."""
    schema = json.loads((pathlib.Path(os.environ["SCHEMAS"]) / "sarif-schema-2.1.0.json").read_text())
    jsonschema.validators.validator_for(schema)(schema).validate(json.loads(text))


def check_junit(text):
    schema = here.parent / "schemas/junit-10.xsd"
    done = subprocess.run(["xmllint", "--noout", "--schema", schema, "-"], input=text, text=True, capture_output=True)
    need(done.returncode == 0, done.stderr)
    import xml.etree.ElementTree as tree

    for suite in tree.fromstring(text):
        cases = suite.findall("testcase")
        need(int(suite.get("tests")) == len(cases), "tests miscounted")
        for attribute, element in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            need(int(suite.get(attribute)) == sum(case.find(element) is not None for case in cases), attribute + " miscounted")


def check_html(text):
    """Well-formed, whole, and nothing in it that a browser would load; the only script is its own."""
    import xml.etree.ElementTree as tree

    page = tree.fromstring(text)
    need(page.tag == "html" and page.find("body/main/h1").text, "no verdict on the page")
    need(not any(element.tag in ("link", "img", "iframe", "image", "use", "object") for element in page.iter()), "it loads something")
    scripts = list(page.iter("script"))
    need(len(scripts) == 1 and not scripts[0].attrib and "default-src 'none'" in text, "other scripts than its own could run")
    need("url(" not in text and "@import" not in text, "its style loads something")


def check_gitlab(text):
    issues = json.loads(text)
    need(len({issue["fingerprint"] for issue in issues}) == len(issues), "a fingerprint is there twice")
    for issue in issues:
        need(issue["severity"] in ("info", "minor", "major", "critical", "blocker"), "an unknown severity")
        need(issue["description"] and issue["check_name"] and issue["location"]["lines"]["begin"] >= 1, "an incomplete issue")
        need(not issue["location"]["path"].startswith(("/", "./")), "a path that is not from the repository's root")


def check_github(text):
    counts = {"error": 0, "warning": 0, "notice": 0}
    *commands, verdict = text.splitlines()
    need(verdict.startswith("Verdict: "), "the last line is no verdict")
    for line in commands:
        found = re.fullmatch(r"::(error|warning|notice) (?:file=[^,:]+,line=[0-9]+,)?title=[^,:]+::.+", line)
        need(found, "no workflow command: " + line)
        counts[found[1]] += 1
    need(max(counts.values()) <= 10, "more annotations of a kind than GitHub shows")


def check_prometheus(text):
    need(text.endswith("\n"), "no newline at the end")
    seen, typed = set(), set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            typed.add(line.split()[2])
        if line.startswith("#"):
            continue
        found = re.fullmatch(r'([a-z_]+)(\{(?:[a-z_]+="(?:[^"\\]|\\.)*",?)*\}) (-?[0-9.e+-]+)', line)
        need(found, "no sample: " + line)
        need(found[1] in typed, "no type of " + found[1])
        need((found[1], found[2]) not in seen, "a series is there twice: " + line)
        seen.add((found[1], found[2]))


def check_markdown(text):
    need(re.search(r"^#+ ", text, re.M), "no heading")


def check_text(text):
    need(re.search(r"^Verdict: ", text, re.M), "no verdict")


check = globals().get("check_" + sys.argv[1])
need(check, f"valid.py has no check_{sys.argv[1]}: what must hold for those who read the format")
check(open(sys.argv[2], encoding="utf-8").read())
