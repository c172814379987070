// SPDX-License-Identifier: BSD-3-Clause
#include "tool/launch/unprobed.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "tool/launch/process_notes.h"
#include "tool/launch/run_folder.h"
#include "tool/system/paths.h"
#include "tool/system/process_table.h"
#include "tool/system/shell_words.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// Importing torch takes a second. A job of C++ processes is not looked at often for days.
constexpr auto kOften = std::chrono::milliseconds(100);
constexpr auto kSeldom = std::chrono::seconds(2);
constexpr auto kBeginning = std::chrono::seconds(20);
constexpr char kRecord[] = "DDP_DOCTOR_RECORD";

std::string file_of(pid_t pid, const char* name) {
  return content_if_readable(fmt::format("/proc/{}/{}", pid, name));
}

Environment environment_of(pid_t pid) {
  Environment environment;
  for (const auto& setting : split(file_of(pid, "environ"), '\0')) {
    const auto equals = setting.find('=');
    if (equals != std::string::npos)
      environment[setting.substr(0, equals)] = setting.substr(equals + 1);
  }
  return environment;
}

bool is_python(const std::vector<std::string>& words) {
  return !words.empty() && fs::path(words.front()).filename().string().starts_with("python");
}

// The nearest process above `pid`, and below this one, that has the probe's environment.
std::vector<std::string> parent_with_probe(pid_t pid) {
  for (auto state = look_at_process(pid); state; state = look_at_process(state->parent)) {
    if (state->parent <= 1 || state->parent == getpid()) return {};
    if (environment_of(state->parent).contains(kRecord))
      return split(file_of(state->parent, "cmdline"), '\0');
  }
  return {};
}

// The options among the interpreter's own that keep the probe out, as "-I".
std::string option_against(const std::vector<std::string>& words) {
  for (std::size_t i = 1; i < words.size() && words[i].size() > 1 && words[i][0] == '-'; ++i) {
    for (std::size_t at = 1; at < words[i].size(); ++at) {
      const char letter = words[i][at];
      if (letter == 'I' || letter == 'E' || letter == 'S') return {'-', letter};
      if (letter == 'c' || letter == 'm') return {};  // the rest is the program's
      if (letter == '-') break;
      if (letter == 'W' || letter == 'X') {  // with a value, here or in the next word
        if (at + 1 == words[i].size()) ++i;
        break;
      }
    }
  }
  return {};
}

std::string brief(const std::vector<std::string>& words) {
  constexpr std::size_t kMax = 100;
  std::string line = shell_line(words);
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line.size() <= kMax ? line : line.substr(0, kMax) + "...";
}

std::string value(const Environment& environment, const char* name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

// Another sitecustomize that comes before the probe's.
std::string shadowed_by(const std::vector<std::string>& path, const fs::path& probe) {
  for (const auto& folder : path) {
    if (folder == probe) break;
    std::error_code ignored;
    for (const char* name : {"sitecustomize.py", "sitecustomize"}) {
      const fs::path file = fs::path(folder) / name;
      if (!folder.empty() && fs::exists(file, ignored)) return file.string();
    }
  }
  return {};
}

}  // namespace

std::optional<std::string> why_unprobed(const TorchProcess& process, const fs::path& probe) {
  const std::string whose =
      process.parent.empty() ? "the command that ddp-doctor started" : brief(process.parent);
  const std::string without =
      fmt::format("{} loads torch, without the probe: ", brief(process.words));
  if (!process.environment.contains(kRecord)) {
    return without +
           fmt::format(
               "{} did not pass its environment on (env -i, sudo, a scheduler); keep PYTHONPATH "
               "and DDP_DOCTOR_*",
               whose);
  }
  if (value(process.environment, "DDP_DOCTOR") == "0")
    return without + "DDP_DOCTOR=0 in its environment disables it";
  if (const auto option = is_python(process.words) ? option_against(process.words) : "";
      !option.empty()) {
    return without + fmt::format("python {} {}; omit {}", option,
                                 option == "-S"
                                     ? "does not run sitecustomize, which starts the probe"
                                     : "ignores PYTHONPATH, through which the probe is loaded",
                                 option);
  }
  const std::string given = value(process.environment, "PYTHONPATH");
  const auto path = split(given, ':');
  if (std::find(path.begin(), path.end(), probe.string()) == path.end()) {
    return without + fmt::format(
                         "its PYTHONPATH was changed to '{}'; add to it, instead: "
                         "PYTHONPATH={}:$PYTHONPATH",
                         given, given.empty() ? "DIR" : given);
  }
  if (const auto other = shadowed_by(path, probe); !other.empty()) {
    return without + fmt::format(
                         "{} comes before its sitecustomize on PYTHONPATH; put that folder "
                         "at the end of PYTHONPATH",
                         other);
  }
  return {};
}

void TorchProcesses::look(const fs::path& folder) {
  const auto now = Clock::now();
  if (began_ == Clock::time_point()) began_ = now;
  if (recorded_ || now - looked_at_ < (now - began_ < kBeginning ? kOften : kSeldom)) return;
  looked_at_ = now;
  recorded_ = !recorded_ranks(folder).empty();
  if (recorded_) return;
  for (const pid_t pid : descendants_of(getpid())) {
    const auto known = found_.find(pid);
    const auto words = split(file_of(pid, "cmdline"), '\0');
    if (words.empty() || (known != found_.end() && known->second.words == words)) continue;
    const std::string maps = file_of(pid, "maps");
    if (maps.find("/libtorch") == std::string::npos) continue;
    const bool python = is_python(words) || maps.find("/libtorch_python") != std::string::npos ||
                        maps.find("/libpython") != std::string::npos;
    found_[pid] = {pid, words, python, environment_of(pid), parent_with_probe(pid)};
  }
}

std::set<std::string> TorchProcesses::reasons(const fs::path& folder) const {
  std::set<pid_t> noted;
  for (const auto& note : process_notes(folder)) noted.insert(note.pid);
  std::set<std::string> reasons;
  for (const auto& [pid, process] : found_) {
    if (noted.contains(pid) || !process.python) continue;
    if (auto reason = why_unprobed(process, python_probe())) reasons.insert(std::move(*reason));
  }
  return reasons;
}

bool TorchProcesses::any_without_python() const {
  return std::any_of(found_.begin(), found_.end(),
                     [](const auto& found) { return !found.second.python; });
}

}  // namespace ddp_doctor
