// SPDX-License-Identifier: BSD-3-Clause
// The one exception of this code base. Thrown inside, caught at the entry points and around each
// rule and probe. A message says what is wrong, with the values, and ends in the next action.
#pragma once

#include <stdexcept>

namespace ddp_doctor {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace ddp_doctor
