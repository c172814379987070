// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>

#include "lib/report/render/render.h"

namespace ddp_doctor {

void render_junit(const Report& report, const RenderOptions& options, std::ostream& out);
void render_sarif(const Report& report, const RenderOptions& options, std::ostream& out);
void render_github(const Report& report, const RenderOptions& options, std::ostream& out);
void render_gitlab(const Report& report, const RenderOptions& options, std::ostream& out);
void render_prometheus(const Report& report, const RenderOptions& options, std::ostream& out);

std::span<const Format> all_formats() {
  static constexpr std::array kFormats = {
      Format{"text", ".txt", render_text},
      Format{"json", ".json", render_json},
      Format{"markdown", ".md", render_markdown},
      Format{"html", ".html", render_html},
      Format{"junit", ".xml", render_junit},
      Format{"sarif", ".sarif", render_sarif},
      Format{"github", "", render_github},
      Format{"gitlab", "", render_gitlab},
      Format{"prometheus", ".prom", render_prometheus},
  };
  return kFormats;
}

const Format* find_format(std::string_view name_or_suffix) {
  if (name_or_suffix.empty()) return nullptr;
  const auto formats = all_formats();
  const auto found = std::find_if(formats.begin(), formats.end(), [&](const Format& format) {
    return format.name == name_or_suffix || format.suffix == name_or_suffix;
  });
  return found == formats.end() ? nullptr : &*found;
}

}  // namespace ddp_doctor
