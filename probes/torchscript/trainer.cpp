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
#include "lib/version.h"
#include "probes/libtorch/ddp/process_group.h"
#include "probes/libtorch/ddp/tensors.h"
#include "probes/libtorch/module/session.h"
#include "probes/libtorch/optimizer/observed.h"
#include "probes/nccl/plugin.h"
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

SessionSettings settings_of(const WorkerOptions& options, const std::string& substitutions) {
  SessionSettings settings;
  settings.folder = options.record;
  settings.schedule = {.every = options.every, .warmup = 1, .last = options.steps};
  settings.keeps_initial_state = false;  // all ranks load the same file
  settings.values_budget = options.keep_values_mib << 20;
  RecordHeader& header = settings.header;
  header.rank = options.rank;
  header.world_size = options.world_size;
  header.probe = "script";
  header.program = options.program;
  header.details = {
      {"backend", options.backend == "nccl" ? "NCCL" : "Gloo on 127.0.0.1"},
      {"torch_version", torch_version()},
      {"tool_version", kVersion},
      {"strategy", options.strategy},
      {"summary", fmt::format("{}, lr {:g}, seed {}", options.optimizer, options.lr, options.seed)},
      {"note", substitutions}};
  return settings;
}

constexpr std::chrono::seconds kLeaveWithin{2};

class Trainer {
 public:
  Trainer(Program& program, const WorkerOptions& options)
      : program_(program),
        options_(options),
        module_(describe(program.module())),
        session_(Session::make(settings_of(options, program.substitutions()))) {
    training_observer() = session_;
    session_->watch_operations();
  }

  int run() {
    connect();
    try {
      wrap();
      session_->begin_training();
      for (std::int64_t step = 1; step <= options_.steps; ++step) train_step(step);
      finish(false);
    } catch (const Error&) {
      throw;  // the record could not be written
    } catch (const std::exception& error) {
      session_->raised(message_without_backtrace(error));
      finish(true);
      if (options_.backend == "nccl" && group_) nccl_plugin().abort(group_);
      return worker_exit::kRaised;
    }
    leave_together();
    if (options_.backend == "nccl") nccl_plugin().shut_down(group_);
    return worker_exit::kFinished;
  }

 private:
  void finish(bool raised) {
    session_->finish(raised);
    check_record();
  }

  void check_record() const {
    if (!session_->unwritten().empty()) throw Error(session_->unwritten());
  }

  void connect() {
    session_->enter(Phase::kConnecting);
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
    strategy_ = make_strategy(options_.strategy, module_, group_);
    if (strategy_->reducer() == nullptr) session_->attach(module_, true);
    optimizer_ = make_optimizer(options_, module_.parameters);
    session_->optimizer_made(*optimizer_);
  }

  void train_step(std::int64_t step) {
    drop_gradients(module_.parameters);
    for (std::int64_t micro = 0; micro < options_.accumulate; ++micro) {
      const bool last = micro + 1 == options_.accumulate;
      std::optional<NoSync> no_sync;
      if (!last && strategy_->reducer() != nullptr) no_sync.emplace(*strategy_->reducer());
      train_micro_batch((step - 1) * options_.accumulate + micro + 1);
    }
    strategy_->synchronize();
    observe_step(*optimizer_, nullptr, [&](const LossClosure&) { return optimizer_->step(); });
    check_record();
  }

  void train_micro_batch(std::int64_t micro_batch) {
    at::Tensor loss;
    if (program_.has_training_step()) {
      loss = observed_forward([&] {
               return c10::IValue(
                   program_.training_step(options_.rank, options_.world_size, micro_batch));
             }).toTensor();
    } else {
      session_->enter(Phase::kBatch);
      auto batch = program_.batch(options_.rank, options_.world_size, micro_batch);
      if (session_->in_parity()) batch = taken_in_parity(batch);
      const c10::IValue output = observed_forward([&] { return program_.forward(batch); });
      loss = program_.loss(output, batch);
    }
    session_->note_loss(loss.item<double>());
    if (options_.accumulate > 1) loss = loss / static_cast<double>(options_.accumulate);
    session_->enter(Phase::kBackward);
    loss.backward();
  }

  // In the one process of a comparison the samples of the ranks.
  Program::Batch taken_in_parity(const Program::Batch& batch) {
    Samples samples = batch.inputs;
    samples.insert(samples.end(), batch.rest.begin(), batch.rest.end());
    samples = session_->batch(std::move(samples));
    const auto split = samples.begin() + static_cast<std::ptrdiff_t>(batch.inputs.size());
    return {{samples.begin(), split}, {split, samples.end()}};
  }

  c10::IValue observed_forward(const std::function<c10::IValue()>& forward) {
    session_->enter(Phase::kForward);
    c10::IValue output = strategy_->forward(forward);
    session_->forward_returns(collect_tensors(output));
    return output;
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

  Program& program_;
  const WorkerOptions& options_;
  ModuleState module_;
  std::shared_ptr<Session> session_;
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
