// SPDX-License-Identifier: BSD-3-Clause
// What is known of a TorchScript program before it is started.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace ddp_doctor {

struct ScriptOptions {
  std::filesystem::path program;
  std::string strategy = "ddp";
  int world_size = 2;
  std::int64_t steps = 8;
  std::int64_t every = 1;
  double lr = 0.01;
  std::string optimizer = "sgd";
  std::int64_t seed = 0;
  std::int64_t accumulate = 1;
  std::vector<std::string> inputs;  // "float32[8,32]"
  std::int64_t timeout_s = 60;
  std::string backend = "gloo";
  int port = 0;
  std::map<std::string, std::string> environment;  // further settings
  bool rehearsed = false;  // an earlier run of the same examination has done that
};

}  // namespace ddp_doctor
