// SPDX-License-Identifier: BSD-3-Clause
// The rank worker's command line. One worker is one rank; RANK and WORLD_SIZE are in the
// environment, as torchrun sets them, so that a rank can be run by hand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/record/worker.h"

namespace ddp_doctor {

struct WorkerOptions {
  std::string program;
  std::string record;  // folder
  std::string strategy = "ddp";
  std::int64_t steps = 8;
  std::int64_t every = 1;
  double lr = 0.01;
  std::string optimizer = "sgd";
  std::int64_t seed = 0;
  std::int64_t accumulate = 1;
  std::vector<std::string> inputs;
  bool rehearsed = false;  // it is known that its first pass does not fail by itself
  std::int64_t timeout_s = 60;
  std::int64_t keep_values_mib =
      96;  // values kept behind the digests, so that drift can be given exactly
  std::string backend = "gloo";
  int port = 0;
  int rank = 0;
  int world_size = 1;
};

// Nothing if the process should exit immediately with `exit_code` (--version, --help, usage
// errors).
std::optional<WorkerOptions> parse_options(int argc, char** argv, int& exit_code);

}  // namespace ddp_doctor
