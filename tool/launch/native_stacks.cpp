// SPDX-License-Identifier: BSD-3-Clause
#include "tool/launch/native_stacks.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "lib/error.h"
#include "lib/log.h"
#include "tool/launch/start_process.h"
#include "tool/system/interpreter.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;

// gdb reads the symbols of libtorch; a machine with many ranks has no time and memory for many.
constexpr auto kStackDeadline = std::chrono::seconds(3);
constexpr std::size_t kMaxStacks = 8;

std::vector<std::string> command_for(pid_t pid) {
  const std::string process = std::to_string(pid);
  if (const fs::path program = find_executable("eu-stack"); !program.empty())
    return {program.string(), "-1", "-p", process};
  if (const fs::path program = find_executable("gdb"); !program.empty())
    return {program.string(), "-nx", "-batch", "-ex", "bt", "-p", process};
  return {};
}

pid_t start(pid_t process, const fs::path& file) {
  const auto command = command_for(process);
  if (command.empty()) {
    log::info("no native stack of process {}: neither eu-stack nor gdb is on PATH", process);
    return 0;
  }
  const int output = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (output < 0) return 0;
  pid_t started = 0;
  try {
    started = start_process(command, own_environment(), output);
  } catch (const Error& error) {
    log::info("no native stack of process {}: {}", process, error.what());
  }
  close(output);
  return started;
}

}  // namespace

void write_native_stacks(const std::map<fs::path, pid_t>& processes) {
  std::vector<pid_t> running;
  for (const auto& [file, process] : processes) {
    if (running.size() == kMaxStacks) break;
    if (const pid_t started = start(process, file); started > 0) running.push_back(started);
  }
  const auto latest = std::chrono::steady_clock::now() + kStackDeadline;
  while (!running.empty() && std::chrono::steady_clock::now() < latest) {
    std::erase_if(running, [](pid_t pid) { return waitpid(pid, nullptr, WNOHANG) == pid; });
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  for (const pid_t pid : running) {
    log::info("a native stack is incomplete: the debugger took more than {} s",
              kStackDeadline.count());
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
}

}  // namespace ddp_doctor
