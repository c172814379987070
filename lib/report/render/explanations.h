// SPDX-License-Identifier: BSD-3-Clause
// Renderers of an explained log: a value in, text out.
#pragma once

#include <ostream>
#include <string>

#include "lib/explain/explanation.h"
#include "lib/report/render/mentioned.h"

namespace ddp_doctor {

// For people.
void render_text(const ExplainedLog& log, std::ostream& out);

// For programs: schema_version 1, additive changes only.
// `mentioned` may be null.
void render_json(const ExplainedLog& log, const std::string& tool_version,
                 const MentionedParameters* mentioned, std::ostream& out);

}  // namespace ddp_doctor
