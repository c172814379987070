// SPDX-License-Identifier: BSD-3-Clause
// One rank's examination of a C++ program. Tells the step machine (lib/recorder) what
// TrainingObserver and autograd's own hooks report, and looks at the tensors that it asks for.
//
// A step ends with an optimizer's step(). Errors in here are recorded, and the training continues.
#pragma once

#include <ATen/record_function.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_set>

#include "lib/error.h"
#include "lib/recorder/journal.h"
#include "lib/recorder/recorder.h"
#include "probes/libtorch/ddp/distributed_data_parallel.h"
#include "probes/libtorch/ddp/observer.h"
#include "probes/libtorch/module/tensor_table.h"
#include "probes/libtorch/parity/parity.h"

namespace ddp_doctor {

struct SessionSettings {
  std::filesystem::path folder;
  RecordHeader header;
  ScheduleSettings schedule;
  bool keeps_initial_state = true;        // its values, beside the digests
  std::int64_t values_budget = 96 << 20;  // bytes
};

class Session : public TrainingObserver, public std::enable_shared_from_this<Session> {
 public:
  static std::shared_ptr<Session> make(const SessionSettings& settings);
  explicit Session(const SessionSettings& settings);

  // `stays`: its tensors can be collected again as long as the session lives.
  void attach(const ModuleState& module, bool stays = false);
  // The operations of this thread show which parameters a forward reads.
  void watch_operations();
  void unwatch_operations();
  // What a micro-batch takes in the place of these: something else in the one process of
  // `ddp-doctor parity` only.
  Samples batch(Samples given);
  // Whether the program is compared with one process.
  bool in_parity() const { return parity_ != nullptr; }
  void note_loss(double loss);
  // Examination::placement
  void place(const at::Tensor& parameter, const std::vector<int>& shape,
             const std::vector<std::string>& names, std::vector<int> ranks,
             const std::vector<std::string>& placements);
  void enter(Phase phase) { journal_.enter(phase); }
  // Writes the state before step 1, whose time begins now. Otherwise both are done when it begins.
  void begin_training();
  // What a forward without a wrapper returned.
  void forward_returns(const std::vector<at::Tensor>& outputs);
  // The program has finished, or raised an exception whose text is unknown.
  void finish(bool raised);
  // Why the record is incomplete; empty if it is not.
  const std::string& unwritten() const { return unwritten_; }

  int wrapper_begins(const ModuleState& module, const CodePlace& where) override;
  void wrapper_made(int wrapper, DataParallelReducer& reducer,
                    const DistributedDataParallelOptions& options,
                    const ProcessGroupPtr& group) override;
  void wrapper_failed(int wrapper, const std::string& reason) override;
  void wrapper_goes(int wrapper) override;
  void forward_begins(int wrapper, bool paired) override;
  void forward_ends(int wrapper, const std::vector<at::Tensor>& outputs) override;
  void optimizer_made(torch::optim::Optimizer& optimizer) override;
  void optimizer_goes(torch::optim::Optimizer& optimizer) override;
  void step_begins(torch::optim::Optimizer& optimizer) override;
  void closure_begins() override;
  void gradients_ready(torch::optim::Optimizer& optimizer) override;
  void step_ends(torch::optim::Optimizer& optimizer) override;
  std::int64_t collective_begins(const std::string& op, const std::string& reduce,
                                 const std::vector<at::Tensor>& tensors,
                                 const std::vector<int>& ranks) override;
  void collective_resumes(std::int64_t number) override;
  void collective_ends(std::int64_t number) override;
  void raising(const std::string& text) override;
  void raised(const std::string& text) override;

 private:
  struct Wrapper {
    ModuleState module;
    DataParallelReducer* reducer = nullptr;  // null after it is destroyed, or if it never existed
    std::int64_t construction = 0, forward = 0;  // entries of the call log
  };
  struct OptimizerState {
    const torch::optim::Optimizer* optimizer = nullptr;  // null after it is destroyed
    int number = -1;                                     // by first step
    std::vector<Entry*> entries;
    std::vector<const c10::TensorImpl*> held;
    bool hooked_late = false;     // by the step under way: how its gradients came was not seen
    std::string tensors;          // ids of its parameters, as JSON
    std::vector<Entry*> covered;  // entries that its steps answer for
    std::size_t covered_of = 0;   // of how many; 0: not looked
  };

  // Guards every call from the program: exceptions of the probe do not reach it, and the cost is
  // measured.
  template <class Work>
  void passive(const char* where, const Work& work) noexcept;
  void failed(const char* where, const char* what) noexcept;
  bool recorded() const { return recorder_.schedule.recorded(); }

  // forwards.cpp
  void operation_reads(const at::RecordFunction& operation) noexcept;
  void saw(const at::Tensor& tensor);
  void look_at_graph(const std::vector<at::Tensor>& outputs);
  void write_fields(int wrapper, const char* moment);
  std::string ranks_text(const std::vector<int>& ranks) const;

  // backwards.cpp
  void gradient_arrived(int id) noexcept;
  void examine_local(Entry& entry);
  void backward_begins(int first);
  void backward_ends();
  void call_at_the_end(int hops);
  template <class Wanted>
  void look_at_gradients(Stage stage, int what, const Wanted& wanted, bool keep);
  // The tensor whose gradient or weight is reduced, and which; null for a copy or anything else.
  std::pair<Entry*, bool> target_of(const std::vector<at::Tensor>& tensors);

  // Guards `work` of the comparison with one process.
  template <class Work>
  void compare(const Work& work);
  std::vector<NamedTensor> named(const std::vector<const Entry*>& entries) const;

  // steps.cpp
  OptimizerState& known(const torch::optim::Optimizer& optimizer);
  // Whether it holds new parameters.
  void follow_wrapped_modules(const std::vector<at::Tensor>& held);
  bool follow_optimizer(OptimizerState& known, torch::optim::Optimizer& optimizer);
  const std::vector<Entry*>& covered(OptimizerState& known);
  void write_initial_state();
  void write_placements();
  void write_usages(int optimizer, const std::vector<Entry*>& covered);
  void look_after(OptimizerState& known);
  void restart_clock();
  void leave_values(const std::vector<Entry*>& covered);
  void observe_buffers();
  void last_look();

  SessionSettings settings_;
  std::recursive_mutex mutex_;
  Recorder recorder_;
  TensorTable tensors_{recorder_};
  Journal journal_{recorder_, recorder_.schedule};
  std::vector<Wrapper> wrappers_;
  std::vector<ModuleState> attached_;  // those that stay
  std::vector<std::unique_ptr<OptimizerState>> optimizers_;
  std::vector<nlohmann::json> meshes_;
  std::vector<std::pair<at::Tensor, nlohmann::json>> placements_;
  bool closed_ = false, busy_ = false, raised_ = false;
  std::string last_error_;  // thrown by c10d, and perhaps caught
  std::string unwritten_;
  Phase phase_before_collective_ = Phase::kBatch;
  std::optional<at::CallbackHandle> operations_;

  bool keep_gradients_ = false;
  std::optional<std::unordered_set<int>> in_output_;

  bool state_written_ = false;
  std::int64_t last_examined_ = 0;
  std::int64_t probe_ns_ = 0, started_ns_ = 0, began_ns_ = 0;
  std::int64_t writing_ns_ = 0;  // of the last row, charged to the next one
  std::unique_ptr<Parity> parity_;
};

inline constexpr int kSeen = take::kDigest | take::kSample;

std::int64_t wall_clock_now();    // CLOCK_REALTIME, ns
std::int64_t steady_clock_now();  // CLOCK_MONOTONIC, ns

// Runs `work`; see Session.
template <class Work>
void Session::passive(const char* where, const Work& work) noexcept {
  const std::lock_guard lock(mutex_);
  if (closed_ || busy_ || !recorder_.is_own()) return;
  busy_ = true;
  const auto begin = steady_clock_now();
  try {
    work();
  } catch (const Error& error) {
    if (unwritten_.empty()) unwritten_ = error.what();
    failed(where, error.what());
  } catch (const c10::Error& error) {
    failed(where, error.what_without_backtrace());
  } catch (const std::exception& error) {
    failed(where, error.what());
  } catch (...) {
    failed(where, "unknown");
  }
  probe_ns_ += steady_clock_now() - begin;
  busy_ = false;
}

template <class Work>
void Session::compare(const Work& work) {
  if (!parity_) return;
  try {
    work();
  } catch (const c10::Error& error) {
    parity_->failed(error.what_without_backtrace());
  } catch (const std::exception& error) {
    parity_->failed(error.what());
  }
}

template <class Wanted>
void Session::look_at_gradients(Stage stage, int what, const Wanted& wanted, bool keep) {
  TensorTable::Pairs pairs;
  for (const auto& entry : tensors_.entries()) {
    if (!entry->is_parameter || !wanted(*entry)) continue;
    if (const at::Tensor gradient = entry->tensor.grad(); gradient.defined())
      pairs.emplace_back(entry.get(), gradient);
  }
  tensors_.observe(stage, what | (keep && keep_gradients_ ? take::kKeep : 0), pairs);
}

}  // namespace ddp_doctor
