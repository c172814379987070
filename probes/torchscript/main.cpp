// SPDX-License-Identifier: BSD-3-Clause
// script-probe: one rank that trains a TorchScript program under a strategy and records what it
// sees.

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "lib/error.h"
#include "probes/nccl/plugin.h"
#include "probes/torchscript/options.h"
#include "probes/torchscript/prepared.h"
#include "probes/torchscript/torch_text.h"
#include "probes/torchscript/trainer.h"

namespace ddp_doctor {
namespace {

// NCCL needs one GPU per rank.
c10::Device own_gpu(const WorkerOptions& options) {
  const int gpus = nccl_plugin().gpus();
  if (gpus == 0) throw Error("--backend nccl: no GPU is visible; use --backend gloo");
  if (gpus < options.world_size)
    throw Error(
        fmt::format("--backend nccl: {} ranks need one GPU each, but there are {}; use "
                    "--nproc-per-node {} or --backend gloo",
                    options.world_size, gpus, gpus));
  return {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(options.rank)};
}

int run(const WorkerOptions& options) {
  std::vector<InputSpec> inputs;
  for (const auto& text : options.inputs) inputs.push_back(parse_input(text));
  Program program(options.program, inputs, options.seed);
  torch::manual_seed(static_cast<std::uint64_t>(options.seed + options.rank));
  try {
    if (!options.rehearsed) program.rehearse(options.rank, options.world_size);
  } catch (const Error& error) {
    std::cerr << kErrorMark << error.what() << std::endl;
    return worker_exit::kRefusedProgram;
  }
  if (options.backend == "nccl") program.move_to(own_gpu(options));
  torch::manual_seed(static_cast<std::uint64_t>(options.seed + options.rank));
  return train(program, options);
}

}  // namespace
}  // namespace ddp_doctor

int main(int argc, char** argv) {
  using namespace ddp_doctor;
  std::vector<std::string> words;
  std::vector<char*> pointers;
  if (argc > 3 && std::string_view(argv[1]) == kPreparedOption) {
    char* const end = argv[argc - 1] + std::strlen(argv[argc - 1]) + 1;
    words = forked_rank(std::atoi(argv[2]), {argv[0], end});
    for (auto& word : words) pointers.push_back(word.data());
    argc = static_cast<int>(pointers.size());
    argv = pointers.data();
  }
  int code = worker_exit::kCouldNotRun;
  const auto options = parse_options(argc, argv, code);
  if (!options) return code;
  try {
    code = run(*options);
  } catch (const std::exception& error) {
    std::cerr << kErrorMark << message_without_backtrace(error) << std::endl;
    code = worker_exit::kCouldNotRun;
  }
  std::cout.flush();
  std::cerr.flush();
  // Destroying a process group may wait forever for peers; the record is closed, so nothing is
  // lost.
  _exit(code);
}
