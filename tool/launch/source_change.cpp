// SPDX-License-Identifier: BSD-3-Clause
#include "tool/launch/source_change.h"

#include <map>
#include <memory>

#include "tool/system/capture.h"
#include "tool/system/interpreter.h"

namespace ddp_doctor {

extern const char* const kSourceChange;  // source_change.py

namespace {

// By the first that can tell: before 3.8 ast did not know where a call ends.
std::optional<Change> asked(const std::vector<std::string>& pythons,
                            const nlohmann::json& request) {
  constexpr auto kDeadline = std::chrono::seconds(10);
  const auto words = request.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  for (const auto& python : pythons) {
    const Answer answer = ask({python, "-I", "-S", "-c", kSourceChange, words}, kDeadline);
    const auto json = nlohmann::json::parse(answer.out, nullptr, false);
    if (answer.status != 0) continue;
    if (!json.is_object()) return {};
    return Change{request.at("file"), json.at("line"), json.at("before"), json.at("after"),
                  json.at("text")};
  }
  return {};
}

}  // namespace

PlaceChange place_by(const std::filesystem::path& python) {
  std::vector<std::string> pythons;
  for (const auto& name : {python.string(), std::string("python3")}) {
    if (const auto file = find_executable(name); !file.empty()) pythons.push_back(file.string());
  }
  auto known = std::make_shared<std::map<nlohmann::json, std::optional<Change>>>();
  return [pythons, known](const nlohmann::json& request) {
    const auto [answer, fresh] = known->try_emplace(request);
    if (fresh) answer->second = asked(pythons, request);
    return answer->second;
  };
}

}  // namespace ddp_doctor
