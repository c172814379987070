// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/render/evidence.h"

#include <fmt/format.h>

#include <algorithm>

namespace ddp_doctor {

std::string label_of(std::string key) {
  if (key == "steps_apart") return "steps that differ";
  if (key == "steps_alike") return "steps that agree";
  std::replace(key.begin(), key.end(), '_', ' ');
  return key;
}

std::string in_words(const nlohmann::ordered_json& value, const char* separator) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_structured()) return value.dump();
  std::string text;
  for (const auto& [key, entry] : value.items()) {
    const bool list =
        entry.is_array() &&
        std::none_of(entry.begin(), entry.end(), [](const auto& e) { return e.is_structured(); });
    if (entry.is_structured() && (value.is_array() || !list)) return value.dump(2);
    if (!text.empty()) text += value.is_array() ? ", " : separator;
    text += value.is_array() ? in_words(entry) : fmt::format("{}: {}", key, in_words(entry));
  }
  return text.empty() ? "none" : text;
}

}  // namespace ddp_doctor
