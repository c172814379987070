// SPDX-License-Identifier: BSD-3-Clause
// The figures of a report as plots. The notes of a plot say what it omits.
#pragma once

#include <string>
#include <vector>

#include "lib/report/plot/plot.h"
#include "lib/report/value/figures.h"
#include "lib/report/value/report.h"

namespace ddp_doctor {

struct Plot {
  std::string caption;
  plot::Drawing drawing;           // empty if there is nothing to draw; a note says why
  std::vector<std::string> notes;  // sentences
  bool wide = false;
};

// Gradient norms, drift, step times, used parameters, phases; of all runs in a comparison,
// otherwise of the examined run.
std::vector<Plot> plots_of(const Report& report);

// The parameters that the map of used parameters shows as hollow: which ranks did not use them, and
// when. No rows if every rank used all.
Figures unused_parameters(const RunReport& run);

// ---- its parts

// The points of a long run: each stands for several steps and keeps their minimum and maximum, in
// order. `steps`: how many each point stands for; 1: nothing is omitted.
struct ThinnedLines {
  std::vector<std::int64_t> x;
  std::vector<plot::Values> y;
  std::size_t steps = 1;
};
ThinnedLines thinned(const std::vector<std::int64_t>& x, const std::vector<plot::Values>& y);

// That, as a sentence; empty if nothing is omitted.
void note_on_points(std::size_t steps, std::vector<std::string>& notes);

plot::LineChart gradient_chart(const RunReport& run, std::vector<std::string>& notes);
plot::HeatMap usage_map(const RunReport& run, std::vector<std::string>& notes);
plot::Lanes phase_lanes(const RunReport& run, std::vector<std::string>& notes);

}  // namespace ddp_doctor
