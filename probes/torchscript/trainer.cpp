// SPDX-License-Identifier: BSD-3-Clause
#include "probes/torchscript/trainer.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>

#include "lib/error.h"
#include "lib/record/writer.h"
#include "probes/libtorch/ddp/process_group.h"
#include "probes/nccl/plugin.h"
#include "probes/torchscript/collective_calls.h"
#include "probes/torchscript/recorder.h"
#include "probes/torchscript/strategy.h"
#include "probes/torchscript/torch_text.h"

namespace ddp_doctor {
namespace {

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const WorkerOptions& options,
                                                        const std::vector<at::Tensor>& parameters) {
  if (options.optimizer == "sgd")
    return std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(options.lr));
  if (options.optimizer == "adam")
    return std::make_unique<torch::optim::Adam>(parameters, torch::optim::AdamOptions(options.lr));
  if (options.optimizer == "adamw")
    return std::make_unique<torch::optim::AdamW>(parameters,
                                                 torch::optim::AdamWOptions(options.lr));
  throw Error(fmt::format("--optimizer {}: choose sgd, adam or adamw", options.optimizer));
}

// Python's zero_grad(set_to_none=True), its default since 2.0: it distinguishes a parameter without
// a gradient from one with zeros.
void drop_gradients(const std::vector<at::Tensor>& parameters) {
  for (auto parameter : parameters) parameter.mutable_grad() = at::Tensor();
}

constexpr std::chrono::seconds kLeaveWithin{2};

class Trainer {
 public:
  Trainer(Program& program, const WorkerOptions& options)
      : program_(program),
        options_(options),
        module_(describe(program.module())),
        recorder_(options, program.module(), module_, program.substitutions()),
        calls_(calls_file(options.record, options.rank)) {}

  int run() {
    connect();
    try {
      wrap();
      recorder_.begin_training();
      for (std::int64_t step = 1; step <= options_.steps; ++step) train_step(step);
      recorder_.progress().enter(Phase::kFinished, options_.steps);
      write_ddp_fields("runtime");
      recorder_.event("end", "");
    } catch (const Error&) {
      throw;  // the record could not be written
    } catch (const std::exception& error) {
      write_ddp_fields("runtime");
      recorder_.event("error", message_without_backtrace(error));
      recorder_.close();
      if (options_.backend == "nccl" && group_) nccl_plugin().abort(group_);
      return worker_exit::kRaised;
    }
    recorder_.close();
    leave_together();
    if (options_.backend == "nccl") nccl_plugin().shut_down(group_);
    return worker_exit::kFinished;
  }

 private:
  void connect() {
    recorder_.progress().enter(Phase::kConnecting, 0);
    const Rendezvous rendezvous{options_.rank, options_.world_size,
                                (std::filesystem::path(options_.record) / "rendezvous").string(),
                                options_.port, std::chrono::seconds(options_.timeout_s)};
    try {
      group_ = options_.backend == "nccl"
                   ? nccl_plugin().make(make_prefixed_store(rendezvous), options_.rank,
                                        options_.world_size, options_.rank, rendezvous.timeout)
                   : make_gloo_process_group(rendezvous);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      throw Error(fmt::format(
          "rank {} could not join the other ranks: {}; use a longer --timeout or fewer ranks",
          options_.rank, message_without_backtrace(error)));
    }
  }

  void wrap() {
    strategy_ = make_strategy(options_.strategy, module_, group_, calls_);
    write_ddp_fields("construction");
    optimizer_ = make_optimizer(options_, module_.parameters);
  }

  void write_ddp_fields(const char* moment) {
    if (strategy_ != nullptr && strategy_->reducer() != nullptr)
      recorder_.ddp_fields(moment, *strategy_->reducer());
  }

  void train_step(std::int64_t step) {
    recorder_.begin_step(step);
    calls_.begin_step(step);
    drop_gradients(module_.parameters);
    double loss = 0.0;
    for (std::int64_t micro = 0; micro < options_.accumulate; ++micro) {
      const bool last = micro + 1 == options_.accumulate;
      std::optional<NoSync> no_sync;
      if (!last && strategy_->reducer() != nullptr) no_sync.emplace(*strategy_->reducer());
      loss += train_micro_batch(step, (step - 1) * options_.accumulate + micro + 1, last);
    }
    enter(Phase::kCollective, step);
    strategy_->synchronize();
    recorder_.before_optimizer();
    enter(Phase::kOptimizer, step);
    optimizer_->step();
    const int backwards = static_cast<int>(options_.accumulate);
    recorder_.end_step(loss, backwards, strategy_->reducer() != nullptr ? backwards - 1 : 0,
                       strategy_->take_counts());
  }

  double train_micro_batch(std::int64_t step, std::int64_t micro_batch, bool last) {
    at::Tensor loss;
    if (program_.has_training_step()) {
      enter(Phase::kForward, step);
      loss = observed_forward([&] {
               return c10::IValue(
                   program_.training_step(options_.rank, options_.world_size, micro_batch));
             }).toTensor();
    } else {
      enter(Phase::kBatch, step);
      const auto batch = program_.batch(options_.rank, options_.world_size, micro_batch);
      enter(Phase::kForward, step);
      const c10::IValue output = observed_forward([&] { return program_.forward(batch); });
      loss = program_.loss(output, batch);
    }
    if (options_.accumulate > 1) loss = loss / static_cast<double>(options_.accumulate);
    const double value = loss.item<double>();
    enter(Phase::kBackward, step);
    strategy_->backward(last, [&] { loss.backward(); });
    return value;
  }

  c10::IValue observed_forward(const std::function<c10::IValue()>& forward) {
    return strategy_->forward([&] {
      recorder_.usage().begin_forward();
      c10::IValue output = forward();
      recorder_.usage().end_forward(output);
      return output;
    });
  }

  // A rank that exits early would close connections that a slower one still reads from. So it waits
  // for the others' progress maps, without a collective that could be paired with one of the
  // program's. A rank that does not finish soon is stuck.
  void leave_together() {
    const auto latest = std::chrono::steady_clock::now() + kLeaveWithin;
    for (int rank = 0; rank < options_.world_size; ++rank) {
      const auto file = progress_file(options_.record, rank);
      while (read_progress(file).phase != Phase::kFinished &&
             std::chrono::steady_clock::now() < latest) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
  }

  void enter(Phase phase, std::int64_t step) { recorder_.progress().enter(phase, step); }

  Program& program_;
  const WorkerOptions& options_;
  ModuleState module_;
  Recorder recorder_;
  CollectiveCalls calls_;
  ProcessGroupPtr group_;
  std::unique_ptr<Strategy> strategy_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

}  // namespace

int train(Program& program, const WorkerOptions& options) {
  // Never destroyed: the process group of a failed rank may wait for lost peers.
  return (new Trainer(program, options))->run();
}

}  // namespace ddp_doctor
