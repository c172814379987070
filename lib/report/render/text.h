// SPDX-License-Identifier: BSD-3-Clause
// Parts of the text report. Each prints to `out`; one with nothing to say prints nothing.
#pragma once

#include <ostream>
#include <string>

#include "lib/report/render/render.h"

namespace ddp_doctor::text {

std::string bold(const RenderOptions& options, const std::string& text);
// By what it says: an error red, a warning yellow, advice blue.
std::string colored(const RenderOptions& options, Severity severity, const std::string& text);

// Every strategy's steps, folded: gradient norms, whether they are synchronized, weight drift.
void print_steps(const Report& report, const RenderOptions& options, std::ostream& out);
// How a run's ranks and parameters lie on a mesh, where they do.
void print_mesh(const RunReport& run, const RenderOptions& options, std::ostream& out);
// One run's steps one by one, with losses and times.
void print_all_steps(const RunReport& run, const RenderOptions& options, std::ostream& out);
// Each compared step against one process.
void print_parity(const Report& report, const RenderOptions& options, std::ostream& out);
// Step times and outcomes, where there are several runs.
void print_side_by_side(const Report& report, const RenderOptions& options, std::ostream& out);
// DDP's logging data of one moment, "construction" or "runtime".
void print_ddp_fields(const RunReport& run, const std::string& moment, const std::string& caption,
                      const RenderOptions& options, std::ostream& out);

// What the gate judges: a finding, what to do and what it leads to; with proof and change in
// `full`.
void print_finding(const Finding& finding, bool full, const RenderOptions& options,
                   std::ostream& out);
// All of them under a heading, and what was suppressed.
void print_findings(const Report& report, const RenderOptions& options, std::ostream& out);
// Of one run among several that are compared.
void print_findings_of(const RunReport& run, const RenderOptions& options, std::ostream& out);
// The rules that could not be decided, by reason.
void print_not_checked(const RunReport& run, std::ostream& out);

}  // namespace ddp_doctor::text
