// SPDX-License-Identifier: BSD-3-Clause
#include "lib/record/thinning.h"

#include <algorithm>

namespace ddp_doctor {

void Thinning::add(std::int64_t step, std::int64_t bytes, bool unusual) {
  bytes_ += bytes;
  const std::int64_t ordinal = count_++;
  if (ordinal < static_cast<std::int64_t>(kFirst)) return;
  const bool kept = unusual && unusual_ < kUnusual;
  if (kept) ++unusual_;
  steps_.push_back({ordinal, step, bytes, kept});
}

// Decided by data that is equal on all ranks, so that they keep the same steps.
bool Thinning::may_go(const Examined& examined) const {
  if (examined.unusual || examined.ordinal % stride_ == 0) return false;
  // The last one before they differ is as much a part of the finding as those after it.
  return !finding_ || examined.ordinal < *finding_ - 1 ||
         examined.ordinal >= *finding_ + static_cast<std::int64_t>(kFinding);
}

std::optional<std::int64_t> Thinning::next(const Watched& watched) {
  if (watched.differs_at && !finding_) {
    const auto found = std::find_if(steps_.begin(), steps_.end(), [&](const Examined& examined) {
      return examined.step >= *watched.differs_at;
    });
    if (found != steps_.end()) finding_ = found->ordinal;
  }
  while (bytes_ > most_bytes_ && steps_.size() > kLatest) {
    if (cursor_ + kLatest >= steps_.size()) {
      if (stride_ >= count_) return {};  // the rest must stay
      cursor_ = 0;
      stride_ *= 2;
      continue;
    }
    const Examined& examined = steps_[cursor_];
    if (watched.by_somebody && examined.step > watched.until) return {};
    if (!may_go(examined)) {
      ++cursor_;
      continue;
    }
    const std::int64_t step = examined.step;
    bytes_ -= examined.bytes;
    ++forgotten_;
    steps_.erase(steps_.begin() + static_cast<std::ptrdiff_t>(cursor_));
    return step;
  }
  return {};
}

}  // namespace ddp_doctor
