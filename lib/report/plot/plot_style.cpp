// SPDX-License-Identifier: BSD-3-Clause
// The CSS of all drawings: lines differ by dash, marks by shape and by being hollow, shares by
// height, the parts of a lane by the row that they stand in; colours come on top.
#include "lib/report/plot/plot.h"

namespace ddp_doctor::plot {

const char* style() {
  return R"(
:root { --c0: #0b62b0; --c1: #b34700; --c2: #00755a; --c3: #8f3f97; --c4: #6b5b00; --c5: #b81f55;
  --c6: #4a5058; --c7: #0f7389; --soft: #d5e3f3; }
@media (prefers-color-scheme: dark) { :root { --c0: #58a6ff; --c1: #f0883e; --c2: #3fb950;
  --c3: #d2a8ff; --c4: #e3b341; --c5: #ff7b9c; --c6: #c9d1d9; --c7: #39c5cf; --soft: #22364f; } }
svg.plot { display: block; width: 100%; height: auto; font: 12px system-ui, sans-serif;
  font-variant-numeric: tabular-nums; }
svg.swatch { flex: none; width: 34px; height: 14px; overflow: hidden; }
.plot text { fill: currentColor; } .plot text.faint { fill: var(--faint); }
.plot text.halo { paint-order: stroke; stroke: var(--page); stroke-width: 3px; stroke-linejoin: round; }
.plot path { fill: none; } .plot .axis { stroke: var(--faint); }
.plot .grid { stroke: var(--line); stroke-width: .7px; } .plot .dotted { stroke-dasharray: 2 3; }
.plot .line { stroke-width: 1.8px; stroke-linejoin: round; }
.plot .l0 { stroke: var(--c0); stroke-width: 2.4px; }
.plot .l1 { stroke: var(--c1); stroke-dasharray: 7 4; }
.plot .l2 { stroke: var(--c2); stroke-dasharray: 2 3; }
.plot .l3 { stroke: var(--c3); stroke-dasharray: 9 3 2 3; } .plot .l4 { stroke: var(--c4); }
.plot .l5 { stroke: var(--c5); stroke-dasharray: 12 4; }
.plot .l6 { stroke: var(--c6); stroke-dasharray: 1 4; stroke-linecap: round; }
.plot .l7 { stroke: var(--c7); stroke-dasharray: 4 2 1 2 1 2; }
.plot .mark { stroke-width: 1.4px; }
.plot .f0 { fill: var(--c0); } .plot .f1 { fill: var(--c1); } .plot .f2 { fill: var(--c2); }
.plot .f3 { fill: var(--c3); }
.plot .o0 { stroke: var(--c0); } .plot .o1 { stroke: var(--c1); } .plot .o2 { stroke: var(--c2); }
.plot .o3 { stroke: var(--c3); } .plot .o4 { stroke: var(--c4); } .plot .o5 { stroke: var(--c5); }
.plot .o6 { stroke: var(--c6); } .plot .o7 { stroke: var(--c7); }
.plot .band { fill: var(--soft); stroke: var(--c0); stroke-width: .8px; }
.plot .used { fill: var(--c0); } .plot .unused { stroke: var(--error); stroke-width: 1.5px; }
.plot .bar { fill: var(--soft); stroke: var(--c0); } .plot .range { stroke: var(--text); stroke-width: 1.5px; }
.plot .whole { fill: var(--soft); stroke: var(--c0); stroke-width: .6px; }
.plot .hollow { fill: var(--page); stroke: var(--faint); }
.plot .part0 { fill: var(--c0); } .plot .part1 { fill: var(--c1); } .plot .part2 { fill: var(--c2); }
.plot .open { fill: none; stroke: var(--error); stroke-width: 1.5px; stroke-dasharray: 5 3; }
)";
}

}  // namespace ddp_doctor::plot
