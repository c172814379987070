// SPDX-License-Identifier: BSD-3-Clause
#include "lib/record/rank_writer.h"

#include <signal.h>

#include <algorithm>
#include <numeric>

#include "lib/digest/elements.h"
#include "lib/digest/strides.h"
#include "lib/error.h"

namespace ddp_doctor {
namespace {

constexpr int kAnyKeep = take::kKeep | take::kKeepLast | take::kKeepWanted;
constexpr int kLoss = -1;  // among tensors
// Steps that may wait for a GPU. PyTorch also limits how far a program runs ahead of the GPU.
constexpr std::size_t kMaxPending = 16;

// Within its lifetime, threads start without signals: those are for the program's own threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

RankWriter::RankWriter(const std::filesystem::path& folder, const RecordHeader& header,
                       std::int64_t budget)
    : writer_(folder, header),
      progress_(progress_file(folder, header.rank)),
      calls_(calls_file(folder, header.rank)),
      budget_(budget) {}

RankWriter::~RankWriter() {
  if (is_own())
    finish_waiting_steps();
  else
    static_cast<void>(finisher_.release());  // a forked process has no such thread
}

void RankWriter::describe(const std::vector<TensorInfo>& tensors) {
  const std::lock_guard lock(mutex_);
  writer_.write_tensors(tensors);
  for (const auto& tensor : tensors) {
    const auto id = static_cast<std::size_t>(tensor.id);
    if (extents_.size() <= id) extents_.resize(id + 1);
    extents_[id] = {dtype_from_name(tensor.dtype), tensor.numel};
  }
}

RankWriter::Extent RankWriter::extent_of(int tensor) const {
  const std::lock_guard lock(mutex_);
  return extents_.at(static_cast<std::size_t>(tensor));
}

void RankWriter::observe(Stage stage, int what, int tensor, const TensorView& view) {
  // Digests take the time, so they are taken outside the lock.
  SampledValues values;
  if ((what & take::kSample) != 0) values = sample(view);
  std::optional<TensorDigest> seen;
  if ((what & take::kDigest) != 0) {
    const auto before = stage == Stage::kGradient ? reduced(tensor, values) : std::nullopt;
    seen = before ? digest(view, *before) : digest(view);
  }
  const std::lock_guard lock(mutex_);
  const auto at = static_cast<std::size_t>(stage);
  if (seen) pending_.digests[at][tensor] = *seen;
  if ((what & take::kSample) != 0) pending_.samples[at][tensor] = values;
  if ((what & kAnyKeep) != 0) keep({tensor, stage}, what, view);
}

void RankWriter::observe_on_device(Stage stage, int what, int device, void* stream,
                                   std::span<const OnDevice> tensors) {
  std::vector<DeviceTensor> list;
  std::vector<int> ids;
  std::int64_t bytes = 0;
  for (const auto& [tensor, data] : tensors) {
    const auto [dtype, numel] = extent_of(tensor);
    if (data == nullptr && numel > 0) throw Error("a tensor has no memory on the GPU");
    list.push_back({data, dtype, numel});
    ids.push_back(tensor);
    bytes += numel * static_cast<std::int64_t>(element_size(dtype));
  }
  what = affordable(what, bytes);
  DeviceBatch batch(device, stream, list, (what & kAnyKeep) != 0);
  const std::lock_guard lock(mutex_);
  if ((what & kAnyKeep) != 0 && (what & take::kKeepWanted) == 0) kept_ += bytes;
  pending_.asked.push_back({std::move(batch), stage, what, std::move(ids)});
}

void RankWriter::observe_loss_on_device(int device, void* stream, const void* data, DType dtype) {
  if (data == nullptr) throw Error("the loss has no memory on the GPU");
  const DeviceTensor loss{data, dtype, 1};
  DeviceBatch batch(device, stream, {&loss, 1}, false);
  const std::lock_guard lock(mutex_);
  pending_.asked.push_back({std::move(batch), Stage::kGradient, 0, {kLoss}});
}

// The reduced gradient, if the program does not seem to have changed it since.
std::optional<TensorDigest> RankWriter::reduced(int tensor, const SampledValues& values) const {
  const std::lock_guard lock(mutex_);
  constexpr auto kReduced = static_cast<std::size_t>(Stage::kReducedGradient);
  const auto* seen = pending_.digests[kReduced].find(tensor);
  const auto* sampled = pending_.samples[kReduced].find(tensor);
  if (seen == nullptr || sampled == nullptr || *sampled != values) return {};
  return *seen;
}

void RankWriter::Pending::clear() {
  for (auto& stage : digests) stage.clear();
  for (auto& stage : samples) stage.clear();
  values.clear();
  usages.clear();
  asked.clear();
  losses.clear();
}

void RankWriter::Pending::take_answers() {
  for (const auto& [batch, stage, what, tensors] : asked) {
    batch.wait();
    const auto at = static_cast<std::size_t>(stage);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const DeviceDigest result = batch.result(i);
      const int tensor = tensors[i];
      if (tensor == kLoss) {
        losses.push_back(result.samples[0]);
        continue;
      }
      if ((what & take::kDigest) != 0) digests[at][tensor] = result.digest;
      if ((what & take::kSample) != 0) samples[at][tensor] = result.samples;
      if ((what & kAnyKeep) == 0) continue;
      const auto* bytes = reinterpret_cast<const std::uint8_t*>(result.copy.data());
      values[{tensor, stage}] = {tensor, stage, {bytes, bytes + result.copy.size()}};
    }
  }
}

void RankWriter::set_usages(std::vector<Usage> usages) {
  const std::lock_guard lock(mutex_);
  pending_.usages = std::move(usages);
}

std::int64_t RankWriter::room(int what) const {
  return ((what & take::kKeepLast) != 0 ? budget_ : budget_ / 2) - kept_;
}

int RankWriter::affordable(int what, std::int64_t bytes) const {
  const std::lock_guard lock(mutex_);
  return (what & take::kKeepWanted) != 0 || bytes <= room(what) ? what : what & ~kAnyKeep;
}

void RankWriter::keep(const Key& key, int what, const TensorView& view) {
  auto bytes = static_cast<std::int64_t>(element_size(view.dtype));
  for (const auto size : view.sizes) bytes *= size;
  if ((what & take::kKeepWanted) == 0) {
    if (bytes > room(what)) return;
    kept_ += bytes;
  }
  KeptValues copy{key.first, key.second, {}};
  copy.bytes.resize(static_cast<std::size_t>(bytes));
  if (bytes > 0)
    Gather(view).next(reinterpret_cast<std::byte*>(copy.bytes.data()), copy.bytes.size());
  pending_.values[key] = std::move(copy);
}

void RankWriter::forget() {
  const std::lock_guard lock(mutex_);
  pending_.clear();
}

void RankWriter::swap() {
  const std::lock_guard lock(mutex_);
  std::swap(pending_, aside_);
}

void RankWriter::write_step(StepRecord step) {
  std::unique_lock lock(mutex_);
  if (pending_.asked.empty() && waiting_.empty()) {
    write(step, pending_);
  } else {
    write_later(lock, std::move(step));
  }
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void RankWriter::write_later(std::unique_lock<std::mutex>& lock, StepRecord step) {
  waiting_.push_back({std::move(step), std::move(pending_)});
  pending_ = {};
  if (finisher_ == nullptr) {
    const SignalsBlocked blocked;
    finisher_ = std::make_unique<std::thread>([this] { write_waiting_steps(); });
  }
  changed_.notify_all();
  changed_.wait(lock, [this] { return waiting_.size() <= kMaxPending; });
}

// The thread of the writer.
void RankWriter::write_waiting_steps() noexcept {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return closing_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    auto& [step, seen] = waiting_.front();  // stays where it is while others are added
    try {
      lock.unlock();
      seen.take_answers();
      lock.lock();
      write(step, seen);
    } catch (...) {
      if (!lock.owns_lock()) lock.lock();
      failure_ = std::current_exception();
    }
    waiting_.pop_front();
    changed_.notify_all();
  }
}

void RankWriter::finish_waiting_steps() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (finisher_ != nullptr) finisher_->join();
  finisher_.reset();
}

void RankWriter::write(StepRecord& step, Pending& seen) {
  for (std::size_t at = 0; at < kStages; ++at) {
    const auto stage = static_cast<Stage>(at);
    for (const auto& [tensor, digest] : seen.digests[at])
      step.observations.push_back({tensor, stage, digest});
    for (const auto& [tensor, values] : seen.samples[at])
      step.samples.push_back({tensor, stage, values});
  }
  for (auto& [key, values] : seen.values) step.values.push_back(std::move(values));
  if (!seen.usages.empty()) step.usages = std::move(seen.usages);
  if (!seen.losses.empty() && !step.loss)
    step.loss = std::accumulate(seen.losses.begin(), seen.losses.end(), 0.0) /
                static_cast<double>(seen.losses.size());
  seen.clear();  // also if it cannot be written
  writer_.write_step(step, progress_.watched());
}

void RankWriter::write_event(const Event& event) {
  const std::lock_guard lock(mutex_);
  writer_.write_event(event);
}

void RankWriter::write_site(const Site& site) {
  const std::lock_guard lock(mutex_);
  writer_.write_site(site);
}

void RankWriter::write_fact(const Fact& fact) {
  const std::lock_guard lock(mutex_);
  writer_.write_fact(fact);
}

void RankWriter::write_ddp_fields(const std::vector<DdpField>& fields) {
  const std::lock_guard lock(mutex_);
  writer_.write_ddp_fields(fields);
}

std::int64_t RankWriter::call_begins(LoggedCall call, bool paired) {
  const std::lock_guard lock(mutex_);
  call.position = paired ? ++positions_[call.group] : 0;
  return calls_.begin(call);
}

void RankWriter::call_ends(std::int64_t number) {
  const std::lock_guard lock(mutex_);
  if (number > 0) calls_.end(number);
}

void RankWriter::call_resumes(std::int64_t number) {
  const std::lock_guard lock(mutex_);
  if (number > 0) calls_.resume(number);
}

void RankWriter::close() {
  finish_waiting_steps();
  const std::lock_guard lock(mutex_);
  writer_.close();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

}  // namespace ddp_doctor
