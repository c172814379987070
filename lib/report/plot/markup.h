// SPDX-License-Identifier: BSD-3-Clause
// Text for HTML and SVG.
#pragma once

#include <string>

namespace ddp_doctor {

// For use between tags and in attributes. Control characters, which HTML does not allow, become
// spaces.
std::string escaped(const std::string& text);

}  // namespace ddp_doctor
