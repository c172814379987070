// SPDX-License-Identifier: BSD-3-Clause
// Ranks that train TorchScript programs through the C++ wrapper: takes the jobs that
// tests/python/python_ddp.py takes, and writes what that writes of Python's.
#include <sys/wait.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/script.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "lib/digest/digest.h"
#include "probes/libtorch/ddp/distributed_data_parallel.h"
#include "probes/libtorch/ddp/process_group.h"
#include "probes/libtorch/module/tensor_view.h"

namespace {

using namespace ddp_doctor;
using nlohmann::json;

std::string digest_of(const at::Tensor& tensor) {
  return to_hex(digest(LocalTensor(tensor).view()).bits);
}

class Rank {
 public:
  Rank(int rank, int world_size, const std::string& program, const json& options)
      : rank_(rank),
        world_size_(world_size),
        options_(options),
        module_(torch::jit::load(program)) {
    module_.train();
  }

  json train(const std::filesystem::path& folder) {
    const auto group = make_gloo_process_group({.rank = rank_,
                                                .world_size = world_size_,
                                                .file = folder / "rendezvous",
                                                .timeout = std::chrono::seconds(30)});
    try {
      const json& wrapper = options_.at("wrapper");
      // Never destroyed: a failed reduction can leave the group waiting for peers.
      auto& ddp = *new DistributedDataParallel<torch::jit::Module>(
          module_, group,
          {.broadcast_buffers = wrapper.value("broadcast_buffers", true),
           .find_unused_parameters = wrapper.value("find_unused_parameters", false),
           .gradient_as_bucket_view = wrapper.value("gradient_as_bucket_view", false),
           .static_graph = wrapper.value("static_graph", false),
           .bucket_cap_mb = wrapper.value("bucket_cap_mb", 0)});
      steps(ddp);
    } catch (const c10::Error& error) {
      out_["error"] = error.what_without_backtrace();
    } catch (const std::exception& error) {
      out_["error"] = error.what();
    }
    new ProcessGroupPtr(group);
    return out_;
  }

 private:
  void steps(DistributedDataParallel<torch::jit::Module>& ddp) {
    std::vector<std::pair<std::string, at::Tensor>> named;
    std::vector<at::Tensor> parameters;
    std::set<const c10::TensorImpl*> seen;  // a tied one counts once, as in Python
    for (const auto& parameter : module_.named_parameters()) {
      if (!parameter.value.requires_grad()) continue;
      if (!seen.insert(parameter.value.unsafeGetTensorImpl()).second) continue;
      named.emplace_back(parameter.name, parameter.value);
      parameters.push_back(parameter.value);
    }
    torch::optim::SGD optimizer(parameters, torch::optim::SGDOptions(options_.at("lr")));
    const int accumulate = options_.value("accumulate", 1);
    for (int step = 1; step <= options_.at("steps"); ++step) {
      const bool keeps = options_.at("wrapper").value("gradient_as_bucket_view", false);
      for (auto& parameter : parameters) {
        if (!keeps) parameter.mutable_grad() = at::Tensor();
        if (keeps && parameter.grad().defined()) parameter.mutable_grad().zero_();
      }
      for (int micro = 1; micro <= accumulate; ++micro) {
        std::optional<NoSync> no_sync;
        if (micro < accumulate) no_sync.emplace(ddp.reducer());
        micro_batch(ddp, (step - 1) * accumulate + micro);
      }
      for (const auto& [name, parameter] : named) {
        if (parameter.grad().defined()) note(step, 1, name, parameter.grad());
      }
      optimizer.step();
      for (const auto& [name, parameter] : named) note(step, 2, name, parameter);
      for (const auto& buffer : module_.named_buffers()) note(step, 3, buffer.name, buffer.value);
    }
  }

  void micro_batch(DistributedDataParallel<torch::jit::Module>& ddp, int number) {
    const c10::IValue made = module_.get_method("batch")({rank_, world_size_, number});
    const auto batch =
        made.isTuple() ? made.toTuple()->elements().vec() : std::vector<c10::IValue>{made};
    const auto loss_arguments = module_.get_method("loss").num_inputs() - 2;  // self, the output
    const std::vector<c10::IValue> inputs(batch.begin(), batch.end() - loss_arguments);
    std::vector<c10::IValue> rest{ddp.run([&] { return module_.forward(inputs); })};
    rest.insert(rest.end(), batch.end() - loss_arguments, batch.end());
    at::Tensor loss = module_.get_method("loss")(rest).toTensor();
    for (const auto& parameter : module_.named_parameters()) {
      // A parameter that the loss uses beside the wrapper's forward.
      if (parameter.name == options_.value("beside", "")) loss = loss + parameter.value.sum();
    }
    loss.backward();
  }

  void note(int step, int stage, const std::string& name, const at::Tensor& tensor) {
    out_["tensors"][std::to_string(step) + "/" + std::to_string(stage) + "/" + name] =
        digest_of(tensor);
  }

  int rank_, world_size_;
  json options_;
  torch::jit::Module module_;
  json out_ = {{"tensors", json::object()}, {"error", nullptr}};
};

// Whether a rank failed.
bool run_job(const json& job) {
  const std::filesystem::path folder = job.at("folder");
  const std::vector<std::string> programs = job.at("programs");
  const int world_size = static_cast<int>(programs.size());
  for (int rank = 0; rank < world_size; ++rank) {
    if (fork() != 0) continue;
    torch::set_num_threads(1);
    // As the script probe does: plain interpretation, nothing fused.
    torch::jit::getProfilingMode() = false;
    torch::jit::setGraphExecutorOptimize(false);
    Rank trained(rank, world_size, programs[static_cast<std::size_t>(rank)], job.at("options"));
    std::ofstream(folder / (std::to_string(rank) + ".json")) << trained.train(folder).dump();
    _exit(0);
  }
  int failed = 0;
  for (int status = 0; wait(&status) > 0;) failed |= status;
  return failed != 0;
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);)
    std::cout << run_job(json::parse(line)) << std::endl;
}
