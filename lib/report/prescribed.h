// Which strategies the findings of a run prescribe, so that they can be tried.
#pragma once

#include <string>
#include <vector>

#include "lib/report/report.h"

namespace ddp_doctor {

// All of them, each once, the first finding's first; only those among `possible`.
std::vector<std::string> prescribed(const Report& report, const std::vector<std::string>& possible);

// What cures every finding that has a cure, one strategy for each, joined by "+"; empty where one
// strategy does, or fewer than two findings were cured.
std::string combined(const Report& report);

}  // namespace ddp_doctor
