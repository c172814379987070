# SPDX-License-Identifier: BSD-3-Clause
"""look_at_html.py FILE...: opens HTML reports in Chromium and says what is wrong with how they look. Exits with 1 if anything is."""
import pathlib
import sys

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent.parent / "scripts"))
sys.dont_write_bytecode = True
from browser import Browser  # noqa: E402

WIDTHS = (1280, 390)
CHECKS = (here / "look_at_html.js").read_text()
# A click on a head of each table that can be sorted, and another; then the column's texts after each.
SORTING = """
(() => Array.from(document.querySelectorAll('table.sortable')).map(table => {
  const head = table.tHead.rows[0].cells[0], button = head.querySelector('button');
  const column = () => Array.from(table.tBodies[0].rows).filter(row => row.cells.length > 1).map(row => row.cells[0].textContent);
  const before = column();
  if (!button) return {caption: table.id, reached: false, before, up: ['', before], down: ['', before]};
  button.focus();
  const reached = document.activeElement === button;
  button.click();
  const up = [head.getAttribute('aria-sort'), column()];
  button.click();
  return {caption: document.getElementById(table.getAttribute('aria-labelledby')).textContent, reached, before, up, down: [head.getAttribute('aria-sort'), column()]};
}))()
"""


def as_numbers(texts):
    try:
        return [float(text) for text in texts]
    except ValueError:
        return None


def sorting_problems(page):
    tables = page.evaluate(SORTING)
    if not tables:
        yield "no table can be sorted"
    for table in tables:
        up, down = table["up"][1], table["down"][1]
        numbers = as_numbers(up)
        if not table["reached"] or (table["up"][0], table["down"][0]) != ("ascending", "descending"):
            yield f"{table['caption']}: its head is no button that says how it sorts"
        if sorted(up) != sorted(table["before"]) or sorted(down) != sorted(up):
            yield f"{table['caption']}: sorting lost rows"
        if numbers is not None and (numbers != sorted(numbers) or as_numbers(down) != sorted(numbers, reverse=True)):
            yield f"{table['caption']}: not sorted: {up}, {down}"


def problems_of(browser, file):
    texts = set()
    for width in WIDTHS:
        for dark in (False, True):
            page = browser.open(file, width=width, dark=dark)
            where = f"{width} px, {'dark' if dark else 'light'}"
            texts.add(page.evaluate("document.querySelector('main').textContent"))
            for problem in page.evaluate(CHECKS):
                yield f"{where}: {problem}"
            for problem in sorting_problems(page):
                yield f"{where}: {problem}"
            for problem in page.trouble:
                yield f"{where}: on the console: {problem}"
            for url in page.requests[1:]:
                yield f"{where}: asked for {url}"
            page.close()
    page = browser.open(file, width=WIDTHS[0], scripts=False)
    if page.evaluate("document.querySelectorAll('th button').length") != 0:
        yield "without scripts: a script ran"
    texts.add(page.evaluate("document.querySelector('main').textContent"))
    if len(texts) != 1:
        yield "without scripts: not the same text"
    if page.evaluate("document.querySelectorAll('svg.plot[role=img] path').length") == 0:
        yield "without scripts: no plots"
    page.close()


def main():
    count = 0
    with Browser() as browser:
        for file in sys.argv[1:]:
            for problem in problems_of(browser, file):
                print(f"{pathlib.Path(file).name}: {problem}", file=sys.stderr)
                count += 1
    print(f"{len(sys.argv) - 1} reports looked at, {count} problems")
    sys.exit(1 if count else 0)


if __name__ == "__main__":
    main()
