// SPDX-License-Identifier: BSD-3-Clause
// Examines a C++ training program from inside, for `ddp-doctor run -- ./trainer`.
//
//   ddp_doctor::Examination examination(group);
//   ddp_doctor::DistributedDataParallel ddp(Net(), group);
//   ddp_doctor::Observed<torch::optim::SGD> optimizer(ddp.module()->parameters(), 0.1);
//
// It records what the Python probe records (docs/record.md): weights, gradients before and after
// they are synchronized, forwards through wrappers and forwards that bypass them, hand-written
// collectives of an ObservedProcessGroup, steps of an Observed optimizer. It issues no collective,
// draws no random number, changes no tensor and throws nothing into the training. The record lists
// what it cannot examine.
//
// If the program does not run under ddp-doctor and no folder is given, it does nothing: no file, no
// hook.
//
// Construct it right after the process group, before wrappers and optimizers, in the thread that
// trains, and destroy it last. Only one per thread at a time: ranks that are threads of one process
// have one each.
#pragma once

#include <ddp_doctor/module_state.h>
#include <ddp_doctor/observed.h>
#include <ddp_doctor/torch_compat.h>

#include <filesystem>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

namespace ddp_doctor {

class Session;

struct ExaminationSettings {
  // The folder of the record, shared by all ranks of a job. Empty: the folder of ddp-doctor
  // ($DDP_DOCTOR_RECORD). Tests give their own.
  std::filesystem::path folder = {};
  // The first `warmup` steps are examined, then every `every`-th. 0: ddp-doctor's settings, or 50
  // and 10 without it.
  int warmup = 0;
  int every = 0;
};

// An ordered set of ranks with a shape, as PyTorch's DeviceMesh.
struct MeshOfRanks {
  std::vector<int> shape;               // {2, 4}
  std::vector<std::string> names = {};  // of its dimensions: {"dp", "tp"}
  std::vector<int> ranks = {};          // row by row; empty: 0, 1, 2, ...
};

class Examination {
 public:
  // `group`: the whole job. Throws Error if the given folder is not writable. If ddp-doctor's
  // folder is not writable, prints a message to stderr and does nothing.
  explicit Examination(const ProcessGroupPtr& group, const ExaminationSettings& settings = {});
  // Closes the record. During stack unwinding, records that the program raised an exception.
  ~Examination();
  Examination(const Examination&) = delete;
  Examination& operator=(const Examination&) = delete;

  bool active() const { return session_ != nullptr; }

  // Names the parameters of a module without a wrapper: for loops that synchronize by hand. A
  // torch::nn::ModuleHolder, a std::shared_ptr to a torch::nn::Module, or a torch::jit::Module.
  // `name` distinguishes several modules; empty: the class name does.
  template <class Module>
  requires(!std::is_base_of_v<torch::optim::Optimizer, Module>) void attach(
      const Module& module, const std::string& name = "") {
    if (!active()) return;
    if constexpr (std::is_same_v<Module, torch::jit::Module>) {
      attach_module(describe(module), name);
    } else {
      attach_module(describe(*module), name);
    }
  }
  // An optimizer that is not Observed; its steps are then taken here:
  //   examination.step(optimizer);
  void attach(torch::optim::Optimizer& optimizer);
  at::Tensor step(torch::optim::Optimizer& optimizer, LossClosure closure = nullptr);

  // The tensors of a micro-batch, before its forward: the inputs, and what the loss needs beside
  // the outputs. The first dimension counts the samples. Returns what to train on: these, or in the
  // one process of `ddp-doctor parity`, which compares the ranks with it, the samples of the ranks.
  //   const auto batch = examination.batch({x, y});
  //   const auto loss = torch::mse_loss(ddp.forward(batch[0]), batch[1]);
  std::vector<at::Tensor> batch(std::vector<at::Tensor> tensors);

  // The loss of a micro-batch, for the report; before the optimizer's step.
  void loss(double value);

  // How a parameter lies on a mesh, where the program shards it by hand: for each dimension of the
  // mesh "Replicate" (its ranks hold the same), "Shard(0)" (each another part, along that dimension
  // of the tensor) or "Local" (each its own). Before the first step. A parameter that a wrapper
  // covers has a placement already.
  void placement(const at::Tensor& parameter, const MeshOfRanks& mesh,
                 const std::vector<std::string>& placements);

  // Where the ranks' records are; empty if nothing is recorded. check_records(folder()) of
  // <ddp_doctor/check.h> diagnoses them, also while the ranks train: it reads files and does not
  // communicate, so call it after a barrier, where all ranks have reached the same step.
  const std::filesystem::path& folder() const { return folder_; }

 private:
  void attach_module(ModuleState module, const std::string& name);

  std::filesystem::path folder_;
  std::shared_ptr<Session> session_;
  int exceptions_;  // in flight when it was constructed
};

}  // namespace ddp_doctor
