// An examination: one program under one or more strategies, each in fresh processes, and the report
// of them all.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lib/report/report.h"
#include "tool/doctor.h"

namespace ddp_doctor {

struct ScriptOptions {
  std::filesystem::path program;
  std::vector<std::string> strategies;  // the first is examined, the others stand beside it
  int world_size = 2;
  std::int64_t steps = 8;
  std::int64_t every = 1;
  double lr = 0.01;
  std::string optimizer = "sgd";
  std::int64_t seed = 0;
  std::int64_t accumulate = 1;
  std::vector<std::string> inputs;  // "float32[8,32]"
  std::int64_t timeout_s = 60;
  int port = 0;
  std::optional<std::filesystem::path> out;
};

// Runs them all, one after another. Throws Error if the program cannot be run at all (with what the
// ranks said), Interrupted on Ctrl-C. Progress goes to `streams.err` if it is a terminal.
Report examine_script(const ScriptOptions& options, Streams streams);

// Reads what an examination left in `folder`.
Report read_examination(const std::filesystem::path& folder);

}  // namespace ddp_doctor
