// SPDX-License-Identifier: BSD-3-Clause
#include "probes/torchscript/strategy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "lib/error.h"
#include "lib/record/worker.h"
#include "probes/libtorch/collectives/observed_process_group.h"
#include "probes/libtorch/ddp/process_group.h"
#include "probes/libtorch/ddp/tensors.h"

namespace ddp_doctor {
namespace {

// The forward goes through DistributedDataParallel.
class Wrapped : public Strategy {
 public:
  Wrapped(ModuleState module, const ProcessGroupPtr& process_group,
          const DistributedDataParallelOptions& options)
      : reducer_(std::move(module), process_group, options, CodePlace()) {}

  c10::IValue forward(const std::function<c10::IValue()>& forward) override {
    reducer_.before_forward();
    c10::IValue output = forward();
    replace_tensors(output, reducer_.after_forward(collect_tensors(output)));
    return output;
  }
  DataParallelReducer* reducer() override { return &reducer_; }

 private:
  DataParallelReducer reducer_;
};

// The model is wrapped, but the loss is computed on the inner module.
class Bypassed : public Strategy {
 public:
  Bypassed(ModuleState module, const ProcessGroupPtr& process_group)
      : reducer_(std::move(module), process_group, {}, CodePlace()) {}

  c10::IValue forward(const std::function<c10::IValue()>& forward) override { return forward(); }
  DataParallelReducer* reducer() override { return &reducer_; }

 private:
  DataParallelReducer reducer_;
};

// No wrapper: gradients are averaged by hand before optimizer.step().
class HandWritten : public Strategy {
 public:
  HandWritten(ModuleState module, ProcessGroupPtr process_group)
      : module_(std::move(module)), process_group_(observed(std::move(process_group))) {}

  c10::IValue forward(const std::function<c10::IValue()>& forward) override { return forward(); }

 protected:
  void average(at::Tensor& tensor) {
    all_reduce_sum(process_group_, tensor);
    tensor.div_(process_group_->getSize());
  }
  const std::vector<at::Tensor>& parameters() const { return module_.parameters; }

 private:
  ModuleState module_;
  ProcessGroupPtr process_group_;
};

// for p in parameters: if p.grad is not None: all_reduce(p.grad). Correct only if every rank has
// gradients for the same parameters.
class AllReduceEach : public HandWritten {
 public:
  using HandWritten::HandWritten;
  void synchronize() override {
    torch::NoGradGuard no_grad;
    for (const auto& parameter : parameters()) {
      at::Tensor gradient = parameter.grad();
      if (gradient.defined()) average(gradient);
    }
  }
};

// One flat buffer per dtype, zeros where a rank has no gradient: the same collective on every rank,
// whatever the graph.
class AllReduceFlat : public HandWritten {
 public:
  using HandWritten::HandWritten;
  void synchronize() override {
    torch::NoGradGuard no_grad;
    std::map<at::ScalarType, std::vector<at::Tensor>> by_dtype;
    for (const auto& parameter : parameters())
      by_dtype[parameter.scalar_type()].push_back(parameter);
    for (auto& [dtype, members] : by_dtype) {
      std::vector<at::Tensor> pieces;
      for (const auto& parameter : members) {
        const auto& gradient = parameter.grad();
        pieces.push_back(gradient.defined() ? gradient.reshape(-1)
                                            : at::zeros({parameter.numel()}, parameter.options()));
      }
      at::Tensor flat = at::cat(pieces);
      average(flat);
      std::int64_t offset = 0;
      for (auto& parameter : members) {
        const auto piece = flat.narrow(0, offset, parameter.numel()).view_as(parameter);
        offset += parameter.numel();
        if (parameter.grad().defined()) {
          parameter.mutable_grad().copy_(piece);
        } else {
          parameter.mutable_grad() = piece.clone();
        }
      }
    }
  }
};

}  // namespace

std::unique_ptr<Strategy> make_strategy(const std::string& name, ModuleState module,
                                        const ProcessGroupPtr& process_group) {
  const bool known = std::find(std::begin(kScriptStrategies), std::end(kScriptStrategies), name) !=
                     std::end(kScriptStrategies);
  if (!known)
    throw Error(fmt::format("{} is not a strategy; choose one of {}", name,
                            fmt::join(kScriptStrategies, ", ")));
  DistributedDataParallelOptions options;
  options.find_unused_parameters = name == "ddp-find-unused";
  options.static_graph = name == "ddp-static-graph";
  if (name == "allreduce-each")
    return std::make_unique<AllReduceEach>(std::move(module), process_group);
  if (name == "allreduce-flat")
    return std::make_unique<AllReduceFlat>(std::move(module), process_group);
  if (name == "bypass") return std::make_unique<Bypassed>(std::move(module), process_group);
  return std::make_unique<Wrapped>(std::move(module), process_group, options);
}

}  // namespace ddp_doctor
