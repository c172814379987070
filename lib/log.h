// SPDX-License-Identifier: BSD-3-Clause
// Diagnostics of ddp-doctor itself, for a user who asks why (-v, -vv, DDP_DOCTOR_LOG). Reports do
// not go through here (lib/report/render/render.h), nor do errors (lib/error.h).
//
//   warn   ddp-doctor could not do something, and the user should know; shown always
//   info   what it chose and what it did, a line each: interpreter, ranks, folders (-v)
//   debug  every process, look and answer that failed, for a bug report (-vv)
//
// There is no logging library in this header, because lib/ is linked into users' programs. The tool
// sets the sink (tool/cli/log_output.h); without one nothing is logged.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

namespace ddp_doctor::log {

enum class Level { kDebug, kInfo, kWarn };

// Takes messages from any thread.
using Sink = void (*)(Level level, const std::string& message);

// Set while no other thread logs.
inline Sink sink = nullptr;
inline Level least = Level::kWarn;

template <class... Args>
void write(Level level, fmt::format_string<Args...> text, Args&&... args) {
  if (sink != nullptr && level >= least)
    sink(level, fmt::format(text, std::forward<Args>(args)...));
}

template <class... Args>
void debug(fmt::format_string<Args...> text, Args&&... args) {
  write(Level::kDebug, text, std::forward<Args>(args)...);
}

template <class... Args>
void info(fmt::format_string<Args...> text, Args&&... args) {
  write(Level::kInfo, text, std::forward<Args>(args)...);
}

template <class... Args>
void warn(fmt::format_string<Args...> text, Args&&... args) {
  write(Level::kWarn, text, std::forward<Args>(args)...);
}

}  // namespace ddp_doctor::log
