// SPDX-License-Identifier: BSD-3-Clause
// One rank's record while its program runs: the record, the progress map, the call log, and the
// observations since the last step was written. Every probe inside the program's process writes
// through it.
//
// May be called from any thread. Throws Error where something cannot be stored. What a GPU found
// becomes digests and rows on a thread of the writer's own, so the program does not wait for them;
// what cannot be stored there is thrown by the next write_step(), or by close().
#pragma once

#include <unistd.h>

#include <array>
#include <condition_variable>
#include <deque>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lib/digest/device.h"
#include "lib/record/call_log.h"
#include "lib/record/progress.h"
#include "lib/record/writer.h"

namespace ddp_doctor {

// What to take from a tensor: any of these together. The numbers are those of probe_api.h.
namespace take {
inline constexpr int kDigest = 1;       // digest and figures
inline constexpr int kSample = 2;       // the values at a few fixed positions
inline constexpr int kKeep = 4;         // all values, while half of the budget for them is left
inline constexpr int kKeepLast = 8;     // all values, from whatever is left of the budget
inline constexpr int kKeepWanted = 16;  // all values: the watcher asked for them
}  // namespace take

class RankWriter {
 public:
  // Makes rank-NNNNN.sqlite, .progress and .calls in `folder`. `budget`: bytes of tensor values
  // that the record may keep.
  RankWriter(const std::filesystem::path& folder, const RecordHeader& header, std::int64_t budget);
  ~RankWriter();

  // Describes new or changed tensors.
  void describe(const std::vector<TensorInfo>& tensors);
  // As described; throws std::out_of_range if it never was.
  struct Extent {
    DType dtype;
    std::int64_t numel;
  };
  Extent extent_of(int tensor) const;

  // Examines a tensor at a stage of the current step; a repeated call replaces the earlier result.
  void observe(Stage stage, int what, int tensor, const TensorView& view);
  // The same for tensors of GPU number `device`, on one of the program's streams; their step is
  // written when the GPU has reached that point. They must not change before that, as for any
  // kernel of the program.
  struct OnDevice {
    int tensor;
    const void* data;
  };
  void observe_on_device(Stage stage, int what, int device, void* stream,
                         std::span<const OnDevice> tensors);
  // A loss of the current step, one element; the row gets the mean of all of them, unless it
  // already has a loss.
  void observe_loss_on_device(int device, void* stream, const void* data, DType dtype);
  // How the parameters were used in the current step.
  void set_usages(std::vector<Usage> usages);
  // `what` without keeping values, if there is no room for all of `bytes`: half of a step's values
  // are useless.
  int affordable(int what, std::int64_t bytes) const;
  // Forgets what was observed since the last step was written.
  void forget();
  // Swaps it with what was set aside before: to write another step in between.
  void swap();
  // Writes the step, with everything observed since the last one; once the GPU has come so far, if
  // one was asked. Rows come in the order of these calls.
  void write_step(StepRecord step);

  void write_event(const Event& event);
  void write_site(const Site& site);
  void write_fact(const Fact& fact);
  void write_ddp_fields(const std::vector<DdpField>& fields);

  // `paired`: other ranks issue the same call in this group at the same time. Returns the number
  // for call_ends().
  std::int64_t call_begins(LoggedCall call, bool paired);
  void call_ends(std::int64_t number);
  // An asynchronous call, which ended when it was issued, is waited for now.
  void call_resumes(std::int64_t number);

  void enter(Phase phase, std::int64_t step) noexcept { progress_.enter(phase, step); }
  // The step of which the watcher would like to have values; 0: none.
  std::int64_t wanted_step() const noexcept { return progress_.wanted_step(); }
  // False in a process forked from the writer's, which must not use its locks and log.
  bool is_own() const noexcept { return owner_ == ::getpid(); }
  // Closes the record in a state that needs no recovery.
  void close();

 private:
  using Key = std::pair<int, Stage>;

  // Of each tensor the latest. Forgetting keeps the room: there is a step every few milliseconds.
  template <class T>
  class ByTensor {
   public:
    T& operator[](int tensor) {
      const auto id = static_cast<std::size_t>(tensor);
      if (places_.size() <= id) places_.resize(id + 1, 0);
      if (places_[id] == 0) {
        seen_.emplace_back(tensor, T());
        places_[id] = seen_.size();
      }
      return seen_[places_[id] - 1].second;
    }
    const T* find(int tensor) const {
      const auto id = static_cast<std::size_t>(tensor);
      return id < places_.size() && places_[id] != 0 ? &seen_[places_[id] - 1].second : nullptr;
    }
    void clear() {
      for (const auto& [tensor, value] : seen_) places_[static_cast<std::size_t>(tensor)] = 0;
      seen_.clear();
    }
    auto begin() const { return seen_.begin(); }
    auto end() const { return seen_.end(); }

   private:
    std::vector<std::size_t> places_;  // by tensor: place in seen_, from 1; 0: not seen
    std::vector<std::pair<int, T>> seen_;
  };

  // Asked of a GPU, in the order of asking.
  struct Asked {
    DeviceBatch batch;
    Stage stage;
    int what;
    std::vector<int> tensors;
  };

  struct Pending {
    std::array<ByTensor<TensorDigest>, kStages> digests;
    std::array<ByTensor<SampledValues>, kStages> samples;
    std::map<Key, KeptValues> values;
    std::vector<Usage> usages;
    std::vector<Asked> asked;
    std::vector<double> losses;
    void clear();
    void take_answers();  // waits for the GPU
  };
  struct PendingStep {
    StepRecord step;
    Pending seen;
  };
  void write_later(std::unique_lock<std::mutex>& lock, StepRecord step);
  void write_waiting_steps() noexcept;
  void finish_waiting_steps();
  void write(StepRecord& step, Pending& seen);
  std::optional<TensorDigest> reduced(int tensor, const SampledValues& values) const;
  void keep(const Key& key, int what, const TensorView& view);
  std::int64_t room(int what) const;

  mutable std::mutex mutex_;
  RecordWriter writer_;
  ProgressWriter progress_;
  CallLog calls_;
  std::map<std::string, std::int64_t> positions_;  // by group: of its last paired call
  std::vector<Extent> extents_;                    // by id
  Pending pending_;
  Pending aside_;
  std::deque<PendingStep> waiting_;  // for a GPU; the first is being worked on
  std::condition_variable changed_;  // waiting_ or closing_
  bool closing_ = false;
  std::exception_ptr failure_;             // of a step that had waited
  std::unique_ptr<std::thread> finisher_;  // once a step has to wait
  std::int64_t budget_;
  std::int64_t kept_ = 0;
  const pid_t owner_ = ::getpid();
};

}  // namespace ddp_doctor
