// SPDX-License-Identifier: BSD-3-Clause
#include "tool/launch/source_change.h"

#include <map>
#include <memory>

#include "tool/system/capture.h"
#include "tool/system/interpreter.h"

namespace ddp_doctor {

extern const char* const kSourceChange;  // source_change.py

namespace {

std::optional<Change> asked(const std::string& python, const nlohmann::json& request,
                            const std::string& words) {
  constexpr auto kDeadline = std::chrono::seconds(10);
  const Answer answer = ask({python, "-I", "-S", "-c", kSourceChange, words}, kDeadline);
  const auto json = nlohmann::json::parse(answer.out, nullptr, false);
  if (answer.status != 0 || !json.is_object()) return {};
  return Change{request.at("file"), json.at("line"), json.at("before"), json.at("after"),
                json.at("text")};
}

}  // namespace

PlaceChange place_by(const std::filesystem::path& python) {
  auto file = python.empty() ? python : find_executable(python.string());
  if (file.empty()) file = find_executable("python3");
  if (file.empty()) return {};
  auto known = std::make_shared<std::map<std::string, std::optional<Change>>>();
  return [file, known](const nlohmann::json& request) {
    const auto words = request.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    const auto [answer, fresh] = known->try_emplace(words);
    if (fresh) answer->second = asked(file.string(), request, words);
    return answer->second;
  };
}

}  // namespace ddp_doctor
