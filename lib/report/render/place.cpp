// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/render/place.h"

#include <algorithm>
#include <array>
#include <set>

#include "lib/digest/digest.h"

namespace ddp_doctor {

std::string file_in_repository(const std::string& file, const RenderOptions& options) {
  std::filesystem::path path = file;
  if (path.is_relative()) path = options.folder / path;
  path = path.lexically_normal();
  const auto inside = path.lexically_relative(options.root);
  const bool outside = inside.empty() || *inside.begin() == "..";
  return (outside ? path : inside).generic_string();
}

SourcePlace place_of(const Finding& finding, const RunReport& run, const RenderOptions& options) {
  if (finding.where && !finding.where->file.empty())
    return {file_in_repository(finding.where->file, options), std::max(finding.where->line, 1)};
  return {file_in_repository(run.info.program, options), 1};
}

std::string fingerprint_of(const Finding& finding, const RunReport& run,
                           const RenderOptions& options) {
  std::string text = finding.rule + '\0' + place_of(finding, run, options).file;
  std::set<std::string> names;
  for (const auto& parameter : finding.parameters) names.insert(parameter.name);
  for (const auto& name : names) text += '\0' + name;
  const std::array<std::int64_t, 1> sizes = {static_cast<std::int64_t>(text.size())};
  const std::array<std::int64_t, 1> strides = {1};
  return to_hex(digest({text.data(), DType::kUInt8, sizes, strides}).bits);
}

}  // namespace ddp_doctor
