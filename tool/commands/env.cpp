// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <thread>

#include "lib/error.h"
#include "lib/version.h"
#include "tool/cli/command.h"
#include "tool/system/interpreter.h"
#include "tool/system/paths.h"
#include "tool/system/shell_words.h"

namespace ddp_doctor {
namespace {

// The first line that `command` prints, or nothing if it fails.
std::string first_line_of(const std::string& command) {
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen((command + " 2>/dev/null").c_str(), "r"),
                                             pclose);
  std::array<char, 512> line{};
  if (!pipe || std::fgets(line.data(), line.size(), pipe.get()) == nullptr) return {};
  std::string text = line.data();
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

std::string memory() {
  std::ifstream in("/proc/meminfo");
  std::string key;
  double kib = 0;
  in >> key >> kib;
  return fmt::format("{:.1f} GiB", kib / (1 << 20));
}

std::string script_support() {
  try {
    const auto worker = script_probe();
    const std::string version = first_line_of(shell_quoted(worker.string()) + " --version");
    return version.empty()
               ? fmt::format("{} does not start; run it yourself to see why", worker.string())
               : version;
  } catch (const Error& error) {
    return error.what();
  }
}

bool has_worker() {
  try {
    return !script_probe().empty();
  } catch (const Error&) {
    return false;
  }
}

constexpr char kAsAbove[] = "none: see TorchScript programs";

// What the worker's LibTorch has of NCCL; loading it takes seconds.
std::string nccl_support() {
  if (!has_worker()) return kAsAbove;
  return first_line_of(shell_quoted(script_probe().string()) + " --nccl-version");
}

std::string nccl_settings() {
  std::string settings;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (text.starts_with("NCCL_") || text.starts_with("TORCH_NCCL_"))
      settings += std::string(settings.empty() ? "" : " ") + std::string(text);
  }
  return settings.empty() ? "none" : settings;
}

std::string examples() {
  try {
    return examples_folder().string();
  } catch (const Error& error) {
    return has_worker() ? error.what() : kAsAbove;
  }
}

std::string described(const Interpreter& interpreter) {
  if (interpreter.path.empty()) return interpreter.why_not;
  if (!interpreter.why_not.empty())
    return fmt::format("{}: {}", interpreter.path.string(), interpreter.why_not);
  return fmt::format("{}: Python {}, torch {}", interpreter.path.string(), interpreter.python,
                     interpreter.torch);
}

std::string python_support() {
  try {
    return python_probe().string();
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

Action setup_env(CLI::App& app) {
  app.footer("Exit codes: 0, 2 could not run.");
  return [](const Call& call) {
    const Streams streams = call.streams;
    utsname system{};
    uname(&system);
    const auto line = [&](const char* what, const std::string& value) {
      streams.out << fmt::format("{:<22}{}\n", what, value);
    };
    line("ddp-doctor", kVersion);
    line("installation", installation().string());
    line("system", fmt::format("{} {} {}", system.sysname, system.release, system.machine));
    line("cores, memory", fmt::format("{}, {}", std::thread::hardware_concurrency(), memory()));
    line("TorchScript programs", script_support());
    line("NCCL for them", nccl_support());
    line("NCCL's settings", nccl_settings());
    line("programs in Python", python_support());
    if (const char* given = std::getenv(kPythonSetting); given != nullptr && *given != '\0') {
      Interpreter interpreter = interpreters(given).front();
      if (interpreter.path.empty()) interpreter.path = given;
      line(kPythonSetting, described(interpreter));
    }
    for (const auto& interpreter : interpreters(""))
      line(interpreter.found_as.c_str(), described(interpreter));
    line("examples", examples());
    return exit_code::kHealthy;
  };
}

}  // namespace ddp_doctor
