// SPDX-License-Identifier: BSD-3-Clause
// The figures of a report as plots. What is left out of one is said in its notes.
#pragma once

#include <string>
#include <vector>

#include "lib/report/figures.h"
#include "lib/report/plot.h"
#include "lib/report/report.h"

namespace ddp_doctor {

struct Plot {
  std::string caption;
  plot::Drawing drawing;           // empty where there is nothing to draw; a note says why
  std::vector<std::string> notes;  // sentences
  bool wide = false;
};

// Gradient norms, drift, step times, used parameters, phases; of all runs where these stand side by
// side, otherwise of the run that is examined.
std::vector<Plot> plots_of(const Report& report);

// What the map of used parameters shows as hollow, by name: who left it unused, and when. No rows
// where nobody left any.
Figures unused_parameters(const RunReport& run);

// ---- its parts

// The points of a long run: each stands for several steps, of which the least and the greatest
// value stay, in their order. `steps`: what each point stands for; 1: nothing was left out.
struct ThinnedLines {
  std::vector<std::int64_t> x;
  std::vector<plot::Values> y;
  std::size_t steps = 1;
};
ThinnedLines thinned(const std::vector<std::int64_t>& x, const std::vector<plot::Values>& y);

// That, as a sentence, where it is so.
void note_on_points(std::size_t steps, std::vector<std::string>& notes);

plot::LineChart gradient_chart(const RunReport& run, std::vector<std::string>& notes);
plot::HeatMap usage_map(const RunReport& run, std::vector<std::string>& notes);
plot::Lanes phase_lanes(const RunReport& run, std::vector<std::string>& notes);

}  // namespace ddp_doctor
