// SPDX-License-Identifier: BSD-3-Clause
// The examination of a C++ training program from inside: what `ddp-doctor run -- ./trainer` reads.
//
//   ddp_doctor::Examination examination(group);
//   ddp_doctor::DistributedDataParallel ddp(Net(), group);
//   ddp_doctor::Observed<torch::optim::SGD> optimizer(ddp.module()->parameters(), 0.1);
//
// It records what the Python probe records (docs/record.md): weights, gradients before and after
// they are synchronized, forwards through and around wrappers, hand-written collectives of an
// ObservedProcessGroup, steps of an Observed optimizer. It issues no collective, draws no random
// number, changes no tensor and throws nothing into the training; what it cannot examine it says in
// the record.
//
// Where the program does not run under ddp-doctor, and no folder is given, it does nothing at all:
// no file, no hook.
//
// Make it right after the process group, before wrappers and optimizers, in the thread that trains,
// and let it go last. One at a time and thread: ranks that are threads of one process have one
// each.
#pragma once

#include <ddp_doctor/check.h>
#include <ddp_doctor/module_state.h>
#include <ddp_doctor/observed.h>
#include <ddp_doctor/torch_compat.h>

#include <filesystem>
#include <memory>
#include <string>
#include <type_traits>

namespace ddp_doctor {

class Session;

struct ExaminationSettings {
  // Where to record; all ranks of a job share it. Empty: where ddp-doctor says
  // ($DDP_DOCTOR_RECORD). Tests give their own.
  std::filesystem::path folder = {};
  // Every step is looked at for the first `warmup`, then every `every`-th; 0: what ddp-doctor says,
  // 20 and 10 without it.
  int warmup = 0;
  int every = 0;
};

class Examination {
 public:
  // `group`: the whole job. Throws Error if a folder was given and cannot be recorded into; says so
  // on stderr, and does nothing, if ddp-doctor's cannot.
  explicit Examination(const ProcessGroupPtr& group, const ExaminationSettings& settings = {});
  // Closes the record. In a stack that an exception unwinds, the record says that the program
  // raised.
  ~Examination();
  Examination(const Examination&) = delete;
  Examination& operator=(const Examination&) = delete;

  bool active() const { return session_ != nullptr; }

  // Names the parameters of a module that no wrapper holds: for loops that synchronize by hand. A
  // torch::nn::ModuleHolder, a std::shared_ptr to a torch::nn::Module, or a torch::jit::Module.
  // `name` tells several modules apart; empty: their class does.
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

  // The loss of a micro-batch, for the report; before the optimizer's step.
  void loss(double value);

  // What is wrong with the job, as far as all its ranks' records in this folder tell now. Reads
  // files, and asks nothing of other ranks: after a barrier, all of them have come as far as this
  // one.
  Check check() const;

 private:
  void attach_module(ModuleState module, const std::string& name);

  std::filesystem::path folder_;
  std::shared_ptr<Session> session_;
  int exceptions_;  // under way when it was made
};

}  // namespace ddp_doctor
