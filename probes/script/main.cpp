// script-probe: one rank that trains a TorchScript program under a strategy and records what it
// sees.

#include <unistd.h>

#include <exception>
#include <iostream>

#include "lib/error.h"
#include "probes/script/options.h"
#include "probes/script/torch_text.h"
#include "probes/script/trainer.h"

namespace ddp_doctor {
namespace {

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
  torch::manual_seed(static_cast<std::uint64_t>(options.seed + options.rank));
  return train(program, options);
}

}  // namespace
}  // namespace ddp_doctor

int main(int argc, char** argv) {
  using namespace ddp_doctor;
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
  // Destroying a process group can wait for peers that will never answer; the record is closed,
  // nothing is lost.
  _exit(code);
}
