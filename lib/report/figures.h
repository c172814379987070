// SPDX-License-Identifier: BSD-3-Clause
// The figures of a report as tables, whoever renders them: by step, and for each run how it went.
#pragma once

#include <string>
#include <vector>

#include "lib/report/report.h"

namespace ddp_doctor {

struct Figures {
  std::string caption;
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
  std::size_t left_out = 0;  // rows, after the first half
};

// Long runs are shown by their first and last steps. Tables without a row are left out.
std::vector<Figures> figures_of(const Report& report);

}  // namespace ddp_doctor
