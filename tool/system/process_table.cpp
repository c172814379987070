// SPDX-License-Identifier: BSD-3-Clause
#include "tool/system/process_table.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <utility>

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;

std::vector<pid_t> all_processes() {
  std::vector<pid_t> pids;
  std::error_code ignored;
  for (fs::directory_iterator entry("/proc", ignored), end; entry != end;
       entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    pid_t pid = 0;
    const auto [rest, failure] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (failure == std::errc() && rest == name.data() + name.size()) pids.push_back(pid);
  }
  return pids;
}

// linux/pidfd.h of Linux 6.15, which gives the status even after the parent took it; Debian 12's
// headers are older.
struct PidfdInfo {
  std::uint64_t mask;
  std::uint64_t cgroup;
  std::uint32_t ids[11];
  std::int32_t status;
};
static_assert(sizeof(PidfdInfo) == 64);
constexpr std::uint64_t kPidfdInfoExit = 1u << 3;

std::optional<int> status_behind(int pidfd) {
  PidfdInfo info{};
  info.mask = kPidfdInfoExit;
  if (pidfd < 0 || ioctl(pidfd, _IOWR(0xFF, 11, PidfdInfo), &info) != 0) return {};
  if ((info.mask & kPidfdInfoExit) == 0) return {};
  return info.status;
}

// Of a file like /proc/PID/stat, from the third one on: the second is the name in parentheses,
// which may hold anything.
std::vector<std::string> fields_of(const std::string& file) {
  const std::string text = content_if_readable(file);
  const auto name_end = text.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream in(text.substr(name_end + 1));
  std::vector<std::string> fields;
  for (std::string field; in >> field;) fields.push_back(std::move(field));
  return fields;
}

}  // namespace

std::string content_if_readable(const std::string& file) {
  // A stream's own operators note that a read fails; its iterators throw.
  std::ostringstream content;
  content << std::ifstream(file, std::ios::binary).rdbuf();
  return content.str();
}

std::optional<ProcessState> look_at_process(pid_t pid) {
  const auto fields = fields_of("/proc/" + std::to_string(pid) + "/stat");
  if (fields.size() < 50) return {};
  ProcessState state;
  state.parent = std::stoi(fields[1]);
  state.ended = fields[0] == "Z" || fields[0] == "X";
  state.started = std::stoull(fields[19]);
  if (state.ended) state.status = std::stoi(fields[49]);
  return state;
}

std::optional<ProcessActivity> activity_of(pid_t pid) {
  const std::string process = "/proc/" + std::to_string(pid);
  const auto whole = fields_of(process + "/stat");
  if (whole.size() < 50) return {};
  ProcessActivity activity;
  activity.sleeps = activity.rests = true;
  activity.processor_ticks = std::stoll(whole[11]) + std::stoll(whole[12]);
  std::error_code ignored;
  for (fs::directory_iterator task(process + "/task", ignored), end; task != end;
       task.increment(ignored)) {
    const auto fields = fields_of(task->path().string() + "/stat");
    if (fields.empty()) continue;
    const std::string& state = fields[0];
    const bool runs = state == "R";
    const bool sleeps = state == "S" || state == "I" || runs;
    activity.runs = activity.runs || runs;
    activity.sleeps = activity.sleeps && sleeps;
    activity.rests = activity.rests && (sleeps || state == "T");
    activity.traced = activity.traced || state == "t";
  }
  std::istringstream io(content_if_readable(process + "/io"));
  std::string name;
  long long bytes = 0;
  for (int lines = 0; lines < 2 && io >> name >> bytes; ++lines) activity.bytes += bytes;
  return activity;
}

bool has_mapped(pid_t pid, const fs::path& file) {
  const std::string maps = content_if_readable("/proc/" + std::to_string(pid) + "/maps");
  return maps.find(" " + file.string() + "\n") != std::string::npos;
}

std::vector<pid_t> descendants_of(pid_t root) {
  std::multimap<pid_t, pid_t> children;
  for (const pid_t pid : all_processes()) {
    if (const auto state = look_at_process(pid)) children.emplace(state->parent, pid);
  }
  std::vector<pid_t> found;
  const auto add_children = [&](pid_t parent) {
    const auto [begin, end] = children.equal_range(parent);
    for (auto child = begin; child != end; ++child) found.push_back(child->second);
  };
  add_children(root);
  for (std::size_t i = 0; i < found.size(); ++i) add_children(found[i]);
  return found;
}

std::vector<pid_t> processes_with(const std::string& setting) {
  std::vector<pid_t> found;
  for (const pid_t pid : all_processes()) {
    const std::string environment =
        content_if_readable("/proc/" + std::to_string(pid) + "/environ");
    const auto at = ('\0' + environment).find('\0' + setting + '\0');
    if (at != std::string::npos) found.push_back(pid);
  }
  return found;
}

EndWatch::EndWatch(pid_t pid)
    : pid_(pid), descriptor_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))) {
  if (descriptor_ >= 0) fcntl(descriptor_, F_SETFD, FD_CLOEXEC);
  if (const auto state = look_at_process(pid)) started_ = state->started;
}

EndWatch::~EndWatch() {
  if (descriptor_ >= 0) close(descriptor_);
}

EndWatch::EndWatch(EndWatch&& other) noexcept
    : pid_(other.pid_),
      descriptor_(std::exchange(other.descriptor_, -1)),
      started_(other.started_),
      running_(other.running_),
      status_(other.status_) {}

bool EndWatch::running() {
  if (!running_) return false;
  const auto state = look_at_process(pid_);
  if (state && state->started == started_ && !state->ended) return true;
  running_ = false;
  if (state && state->started == started_) {
    status_ = state->status;
  } else {
    status_ = status_behind(descriptor_);
  }
  return false;
}

}  // namespace ddp_doctor
