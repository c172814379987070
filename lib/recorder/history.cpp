// SPDX-License-Identifier: BSD-3-Clause
#include "lib/recorder/history.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

namespace ddp_doctor {
namespace {

constexpr std::size_t kMaxTokens = 400;  // of a step's trace
constexpr std::size_t kMaxCalls = 1000;  // collectives that a step records one by one

auto key_of(const Collective& call) {
  return std::tie(call.op, call.reduce, call.dtype, call.numel, call.group, call.moment,
                  call.target, call.file, call.line);
}

template <class Items>
void forget(Items& items, std::size_t& dropped, std::size_t until) {
  for (; dropped < until && !items.empty(); ++dropped) items.pop_front();
}

}  // namespace

void History::token(const std::string& text) {
  if (!tokens_.empty() && tokens_.back().first == text) {
    ++tokens_.back().second;
  } else {
    tokens_.emplace_back(text, 1);
  }
}

void History::call(Collective call) {
  const std::size_t end = calls_dropped_ + calls_.size();
  if (end > last_step_.calls && key_of(calls_.back()) == key_of(call)) {
    ++calls_.back().count;
  } else if (end < last_step_.calls + kMaxCalls) {
    calls_.push_back(std::move(call));
  }
}

void History::begin_round() {
  if (std::exchange(in_round_, true)) return;
  losses.clear();
  round_ = last_step_;
}

void History::backward() {
  begin_round();
  ++counts.backwards;
}

void History::loss(double value) {
  begin_round();
  losses.push_back(value);
}

Mark History::now() const {
  return {counts, tokens_dropped_ + tokens_.size(), calls_dropped_ + calls_.size()};
}

std::string History::trace(const Mark& since) const {
  std::size_t from = std::max(since.tokens, tokens_dropped_) - tokens_dropped_;
  const bool cut = since.tokens < tokens_dropped_ || tokens_.size() > from + kMaxTokens;
  from = std::max(from, tokens_.size() > kMaxTokens ? tokens_.size() - kMaxTokens : 0);
  std::string text = cut ? "..." : "";
  for (std::size_t i = from; i < tokens_.size(); ++i) {
    const auto& [word, count] = tokens_[i];
    text += (text.empty() ? "" : " ") + word;
    if (count > 1) text += "*" + std::to_string(count);
  }
  return text;
}

std::vector<Collective> History::calls(const Mark& since) const {
  const std::size_t from = std::max(since.calls, calls_dropped_) - calls_dropped_;
  return {calls_.begin() + static_cast<std::ptrdiff_t>(std::min(from, calls_.size())),
          calls_.end()};
}

StepRecord History::row(const Mark& since) const {
  const Counts& before = since.counts;
  StepRecord row;
  row.backwards = counts.backwards - before.backwards;
  row.unsynchronized_backwards = counts.unsynchronized - before.unsynchronized;
  row.forwards_through_wrapper = counts.through - before.through;
  row.forwards_around_wrapper = counts.around - before.around;
  row.collectives = counts.collectives - before.collectives;
  row.collective_bytes = counts.bytes - before.bytes;
  row.trace = trace(since);
  row.calls = calls(since);
  if (!losses.empty())
    row.loss =
        std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(losses.size());
  return row;
}

void History::step_ended(const std::vector<Mark>& begins) {
  in_round_ = false;
  last_step_ = now();
  std::size_t tokens = round_.tokens;
  std::size_t calls = round_.calls;
  for (const auto& begin : begins) {
    tokens = std::min(tokens, begin.tokens);
    calls = std::min(calls, begin.calls);
  }
  const auto late = [](std::size_t end, std::size_t most) { return end > most ? end - most : 0; };
  forget(tokens_, tokens_dropped_, std::max(late(last_step_.tokens, kMaxTokens), tokens));
  forget(calls_, calls_dropped_, std::max(late(last_step_.calls, kMaxCalls), calls));
}

}  // namespace ddp_doctor
