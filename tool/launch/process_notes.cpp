// SPDX-License-Identifier: BSD-3-Clause
#include "tool/launch/process_notes.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lib/log.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

template <class T>
std::optional<T> maybe(const json& note, const char* key) {
  const auto found = note.find(key);
  if (found == note.end() || found->is_null()) return {};
  return found->get<T>();
}

}  // namespace

std::vector<ProcessNote> process_notes(const fs::path& folder) {
  std::vector<ProcessNote> notes;
  std::error_code ignored;
  for (fs::directory_iterator entry(folder, ignored), end; entry != end; entry.increment(ignored)) {
    const fs::path file = entry->path();
    if (!file.filename().string().starts_with("process-") || file.extension() != ".json") continue;
    try {
      std::ifstream in(file);
      const json content = json::parse(in);
      ProcessNote note;
      note.pid = content.at("pid").get<pid_t>();
      note.parent = maybe<pid_t>(content, "parent").value_or(0);
      note.torch = maybe<std::string>(content, "torch").value_or("");
      note.distributed = maybe<bool>(content, "distributed").value_or(false);
      note.rank = maybe<int>(content, "rank");
      note.world_size = maybe<int>(content, "world_size");
      note.steps = maybe<std::int64_t>(content, "steps").value_or(0);
      note.seen =
          maybe<std::vector<std::string>>(content, "seen").value_or(std::vector<std::string>{});
      notes.push_back(std::move(note));
    } catch (const json::exception& error) {  // it is just being written
      log::debug("{}: skipped: {}", file.string(), error.what());
    }
  }
  std::sort(notes.begin(), notes.end(), [](const auto& a, const auto& b) { return a.pid < b.pid; });
  return notes;
}

}  // namespace ddp_doctor
