// SPDX-License-Identifier: BSD-3-Clause
// The look of the HTML report, and its only script.
#pragma once

namespace ddp_doctor {

// Colours meet WCAG's contrast of 4.5 against both backgrounds, those of marks (plot::style()) 3.
inline constexpr const char* kHtmlStyle = R"(
:root { color-scheme: light dark; --text: #1c1e21; --faint: #57606a; --page: #fff; --card: #f6f8fa;
  --line: #d0d7de; --error: #a40e26; --warning: #7a4d00; --advice: #0550ae; --healthy: #116329; }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --faint: #9da7b1; --page: #0d1117;
  --card: #161b22; --line: #3d444d; --error: #ff8182; --warning: #e3b341; --advice: #79c0ff;
  --healthy: #56d364; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.2rem 1rem 3rem; max-width: 72rem; background: var(--page);
  color: var(--text); font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.3; margin: 0 0 .3rem; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem; padding-bottom: .25rem;
  border-bottom: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 0; } p { margin: .4rem 0; }
.facts, .of { color: var(--faint); } .facts { font-size: .92rem; }
.error { color: var(--error); } .warning { color: var(--warning); } .advice { color: var(--advice); }
.healthy { color: var(--healthy); }
article { background: var(--card); border: 1px solid var(--line); border-left: .3rem solid;
  border-radius: .4rem; padding: .8rem 1rem; margin: .8rem 0; }
article.error { border-left-color: var(--error); } article.warning { border-left-color: var(--warning); }
article.advice { border-left-color: var(--advice); }
article.error, article.warning, article.advice { color: var(--text); }
article article { background: var(--page); margin-bottom: .2rem; }
dl { display: grid; grid-template-columns: 6rem 1fr; gap: .35rem 1rem; margin: .6rem 0; }
dt { color: var(--faint); font-weight: 600; } .evidence dt { font-weight: 400; } dd { margin: 0; min-width: 0; }
dl.evidence { grid-template-columns: minmax(4rem, max-content) 1fr; gap: 0 1rem; margin: 0;
  font-size: .9rem; }
@media (max-width: 40rem) { dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .4rem; }
  dl.evidence { gap: 0 .8rem; } dl.evidence dd { margin: 0; } article { padding: .6rem .7rem; } }
pre, code { font-family: ui-monospace, monospace; font-size: .9em; }
pre { overflow-x: auto; margin: .4rem 0; } details pre { white-space: pre-wrap; }
summary { cursor: pointer; }
.scroll { overflow-x: auto; margin: .4rem 0 1.6rem; }
.columns { columns: 2 25rem; column-gap: 2.4rem; margin-bottom: 1.2rem; }
figure { margin: 0 0 1.6rem; break-inside: avoid; }
figure .scroll { margin: 0; } figure.wide .scroll svg { min-width: 44rem; }
figcaption { font-weight: 600; margin-bottom: .5rem; }
figure p { font-size: .85rem; color: var(--faint); margin: .15rem 0; }
ul.legend { display: flex; flex-wrap: wrap; gap: .1rem 1.2rem; list-style: none; margin: .3rem 0;
  padding: 0; font-size: .85rem; }
ul.legend li { display: flex; align-items: center; gap: .5rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { text-align: right; padding: .15rem .6rem; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
thead th { vertical-align: bottom; } tbody th { font-weight: inherit; }
.words { text-align: left; } td.words { white-space: normal; min-width: 16rem; }
tbody tr:hover { background: var(--card); }
th button { all: unset; cursor: pointer; } th button:focus-visible { outline: 2px solid var(--advice); }
th button::after { content: "\00a0\2195"; color: var(--faint); font-weight: 400; }
th[aria-sort=ascending] button::after { content: "\00a0\2191"; }
th[aria-sort=descending] button::after { content: "\00a0\2193"; }
)";

// Makes table heads buttons that sort; without scripts they are plain heads. No "less than" and no
// ampersand, so that the page is XML, too.
inline constexpr const char* kHtmlScript = R"(
for (const table of document.querySelectorAll('table.sortable')) {
  const body = table.tBodies[0];
  const heads = Array.from(table.tHead.rows[0].cells);
  const compare = (a, b) => {
    const x = parseFloat(a.replace('> ', '')), y = parseFloat(b.replace('> ', ''));
    if (!isNaN(x)) return isNaN(y) ? -1 : x - y || a.localeCompare(b);
    return isNaN(y) ? a.localeCompare(b) : 1;
  };
  heads.forEach((head, column) => {
    const button = document.createElement('button');
    button.type = 'button';
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener('click', () => {
      const sign = head.getAttribute('aria-sort') === 'ascending' ? -1 : 1;
      for (const other of heads) other.removeAttribute('aria-sort');
      head.setAttribute('aria-sort', sign === 1 ? 'ascending' : 'descending');
      const text = row => row.cells[column].textContent;
      const known = row => row.cells.length === heads.length ? text(row) !== '-' ? text(row) !== '' : false : false;
      const rows = Array.from(body.rows);
      const sorted = rows.filter(known).sort((a, b) => sign * compare(text(a), text(b)));
      body.append(...sorted, ...rows.filter(row => !known(row)));
    });
  });
}
)";

}  // namespace ddp_doctor
