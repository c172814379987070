// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace ddp_doctor {

// The smallest change to the user's own code.
struct Change {
  std::string file;
  int line = 0;
  // The lines now, and after the change; empty if the text describes the change.
  std::string before, after;
  std::string text;

  bool operator==(const Change&) const = default;
};

}  // namespace ddp_doctor
