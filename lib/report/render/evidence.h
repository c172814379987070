// SPDX-License-Identifier: BSD-3-Clause
// A finding's evidence, for people.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace ddp_doctor {

// "steps that differ" of "steps_apart".
std::string label_of(std::string key);
// Lists and maps of plain values as people write them; the rest as JSON.
std::string in_words(const nlohmann::ordered_json& value, const char* separator = "; ");

}  // namespace ddp_doctor
