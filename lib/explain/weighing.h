// SPDX-License-Identifier: BSD-3-Clause
// What those who weigh the fields of several ranks share.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "lib/diagnose/rule.h"
#include "lib/explain/explanation.h"

namespace ddp_doctor {

// The ranks that report this field, and its different values.
struct FigureValues {
  std::vector<int> ranks;
  std::set<std::string> values;
};
FigureValues figures_of(const Explanation& explanation, const std::string& what);

bool is_in(const std::vector<int>& ranks, int rank);

// The ranks with the smallest value, if the values differ.
std::vector<int> behind(const std::vector<RankFields>& ranks, const std::string& what);

// Moves the rule to that place among those that come into question, or adds it there.
void put(Explanation& explanation, const Rule& rule, std::ptrdiff_t place);

}  // namespace ddp_doctor
