// SPDX-License-Identifier: BSD-3-Clause
#include "tool/cli/log_output.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/ostream_sink.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <string_view>

#include "lib/error.h"
#include "lib/log.h"

namespace ddp_doctor {
namespace {

constexpr char kVariable[] = "DDP_DOCTOR_LOG";

std::unique_ptr<spdlog::logger> logger;

void write(log::Level level, const std::string& message) {
  logger->log(level == log::Level::kDebug  ? spdlog::level::debug
              : level == log::Level::kInfo ? spdlog::level::info
                                           : spdlog::level::warn,
              message);
}

// Nothing: off.
std::optional<log::Level> level_of(int verbose) {
  const char* given = std::getenv(kVariable);
  if (given == nullptr || *given == '\0')
    return verbose > 1 ? log::Level::kDebug : verbose > 0 ? log::Level::kInfo : log::Level::kWarn;
  const std::string_view name = given;
  if (name == "off") return {};
  if (name == "warn") return log::Level::kWarn;
  if (name == "info") return log::Level::kInfo;
  if (name == "debug") return log::Level::kDebug;
  throw Error(fmt::format("{}={}: not a level; use off, warn, info or debug", kVariable, given));
}

}  // namespace

LogOutput::LogOutput(std::ostream& stream, int verbose) {
  const auto level = level_of(verbose);
  if (!level) return;
  logger = std::make_unique<spdlog::logger>(
      "ddp-doctor", std::make_shared<spdlog::sinks::ostream_sink_mt>(stream, true));
  logger->set_level(spdlog::level::trace);
  logger->set_pattern("ddp-doctor: %H:%M:%S.%e %l: %v");
  log::least = *level;
  log::sink = write;
}

LogOutput::~LogOutput() {
  log::sink = nullptr;
  logger.reset();
}

}  // namespace ddp_doctor
