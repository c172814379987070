// SPDX-License-Identifier: BSD-3-Clause
// Text for HTML and SVG.
#pragma once

#include <string>

namespace ddp_doctor {

// As it may stand between tags and in attributes. Control characters, which are none of HTML's,
// become spaces.
std::string escaped(const std::string& text);

}  // namespace ddp_doctor
