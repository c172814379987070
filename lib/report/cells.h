// What stands in a cell of the text report.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lib/report/report.h"

namespace ddp_doctor::cells {

// "0", "1.769e-04", "0 (bits differ)" for 0.0 against -0.0, "> 0" where no values were kept, "-"
// where ranks are missing.
std::string drift(const StepRow& row);
std::string synced(const StepRow& row);

// Up to four ranks one by one; more of them as a range, or as one figure where all are equal.
std::string by_rank(const std::vector<std::optional<double>>& values);

// Indices of unused parameters: once where all ranks agree, "r0: 4 5  r1: -" where they do not.
std::string unused(const StepRow& row);

}  // namespace ddp_doctor::cells
