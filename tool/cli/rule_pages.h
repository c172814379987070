// SPDX-License-Identifier: BSD-3-Clause
// The pages of docs/rules/, embedded by the build.
#pragma once

#include <span>
#include <string_view>

namespace ddp_doctor {

struct RulePage {
  std::string_view code;
  std::string_view text;
};

std::span<const RulePage> rule_pages();

}  // namespace ddp_doctor
