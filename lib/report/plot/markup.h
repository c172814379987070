// SPDX-License-Identifier: BSD-3-Clause
// Text for HTML, SVG and XML.
#pragma once

#include <string>
#include <string_view>

namespace ddp_doctor {

// For use between tags and in attributes. Control characters, which neither HTML nor XML allows,
// become spaces.
std::string escaped(std::string_view text);

}  // namespace ddp_doctor
