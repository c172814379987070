// SPDX-License-Identifier: BSD-3-Clause
// Ranks' phases over time.
//
// A step takes milliseconds, the first one often a hundred times as long, and a rank that waits for
// another may do so for minutes: if necessary, the scale changes after the first step and where the
// last step ended.

#include <fmt/format.h>

#include <algorithm>

#include "lib/report/plot/plots.h"

namespace ddp_doctor {
namespace {

using plot::Lanes;

// What is drawn of a call that another of its kind follows that closely is one with it.
constexpr double kCloseBy = 1.0 / 2000;
// Of more spans in a lane nobody points at each.
constexpr std::size_t kMaxExplained = 80;

Lanes::Kind kind_of(Phases::Activity activity) {
  switch (activity) {
    case Phases::Activity::kForward:
      return Lanes::Kind::kFirst;
    case Phases::Activity::kBackward:
      return Lanes::Kind::kSecond;
    case Phases::Activity::kCollective:
      return Lanes::Kind::kThird;
  }
  return Lanes::Kind::kThird;
}

double end_of(const Phases::Block& block) { return block.began_ms + block.own_ms + block.probe_ms; }

class LanesMaker {
 public:
  LanesMaker(const Phases& phases, std::vector<std::string>& notes)
      : phases_(phases), notes_(notes) {}

  Lanes make() {
    measure();
    for (const auto& rank : phases_.ranks) lane(rank);
    scale();
    legend();
    if (phases_.ranks.size() < phases_.ranks_seen)
      notes_.push_back(fmt::format(
          "{} of {} ranks: those that did not finish and those that findings name, then the "
          "lowest.",
          phases_.ranks.size(), phases_.ranks_seen));
    if (phases_.steps_per_block > 1)
      notes_.push_back(fmt::format(
          "Each block is {} steps, without the forwards, backwards and collectives in them.",
          phases_.steps_per_block));
    notes_.emplace_back("The examination is spread over a step; its time is drawn after the step.");
    if (any_call_)
      notes_.push_back(fmt::format("Forwards, backwards and collectives are exact to {:.2f} ms.",
                                   std::max(phases_.uncertainty_ms, 0.01)));
    return std::move(lanes_);
  }

 private:
  void measure() {
    for (const auto& rank : phases_.ranks) {
      if (!rank.blocks.empty()) {
        steps_end_ = std::max(steps_end_, end_of(rank.blocks.back()));
        first_end_ = std::max(first_end_, end_of(rank.blocks.front()));
        blocks_ = std::max(blocks_, rank.blocks.size());
      }
      for (const auto& call : rank.calls) {
        steps_end_ = std::max(steps_end_, call.returned ? call.to_ms : call.from_ms);
      }
      if (rank.end) all_end_ = std::max(all_end_, rank.end->at_ms);
    }
    all_end_ = std::max(all_end_, steps_end_);
    unit_ = steps_end_ > 5000 ? 1000.0 : 1.0;
  }

  void lane(const Phases::Rank& rank) {
    Lanes::Lane lane;
    lane.label = fmt::format("rank {}", rank.rank);
    for (const auto& block : rank.blocks) {
      const double own_end = block.began_ms + block.own_ms;
      const std::string steps = block.first == block.last
                                    ? fmt::format("step {}", block.first)
                                    : fmt::format("steps {} to {}", block.first, block.last);
      span(lane, Lanes::Kind::kWhole, block.began_ms, own_end,
           fmt::format("{}: {:.2f} ms", steps, block.own_ms));
      if (block.probe_ms > 0.0)
        span(lane, Lanes::Kind::kHollow, own_end, own_end + block.probe_ms,
             fmt::format("{}: examined in {:.2f} ms", steps, block.probe_ms));
    }
    if (rank.end) {
      const double from = rank.blocks.empty() ? 0.0 : end_of(rank.blocks.back());
      if (rank.end->at_ms > from)
        span(lane, Lanes::Kind::kOpen, from, rank.end->at_ms,
             fmt::format("step {}, never completed", rank.end->step));
      lane.remark = fmt::format("{} in step {}", rank.end->how, rank.end->step);
      if (!rank.end->phase.empty())
        lane.remark += rank.end->phase == "batch" ? ", between steps (batch)"
                                                  : fmt::format(", in {}", rank.end->phase);
    }
    calls(lane, rank);
    if (lane.spans.size() > kMaxExplained) {
      for (auto& span : lane.spans) span.text.clear();
    }
    lanes_.lanes.push_back(std::move(lane));
  }

  void calls(Lanes::Lane& lane, const Phases::Rank& rank) {
    const double close = steps_end_ * kCloseBy;
    std::optional<Phases::Call> open[3];
    const auto draw = [&](const Phases::Call& call) {
      span(lane, kind_of(call.activity), call.from_ms, call.to_ms,
           fmt::format("step {}: {}{}", call.step, call.name,
                       call.returned ? fmt::format(", {:.2f} ms", call.to_ms - call.from_ms)
                                     : ", never returned"));
    };
    for (const auto& call : rank.calls) {
      any_call_ = true;
      used_[static_cast<int>(call.activity)] = true;
      auto& last = open[static_cast<int>(call.activity)];
      if (last && call.from_ms - last->to_ms < close && last->step == call.step &&
          last->to_ms - last->from_ms < close && call.returned) {
        last->to_ms = std::max(last->to_ms, call.to_ms);
        last->name = "several";
        continue;
      }
      if (last) draw(*last);
      last = call;
    }
    for (const auto& last : open) {
      if (last) draw(*last);
    }
  }

  void span(Lanes::Lane& lane, Lanes::Kind kind, double from, double to, const std::string& text) {
    lane.spans.push_back({kind, from / unit_, to / unit_, text});
  }

  void scale() {
    const bool slow_start = blocks_ >= 3 && first_end_ > 0.35 * steps_end_;
    const bool long_wait = all_end_ > 1.3 * steps_end_;
    auto& knots = lanes_.knots;
    knots.emplace_back(0.0, 0.0);
    if (slow_start) knots.emplace_back(first_end_ / unit_, 0.16);
    const double end = std::max(steps_end_, 1e-6) / unit_;
    knots.emplace_back(end, long_wait ? 0.72 : 1.0);
    if (long_wait) knots.emplace_back(all_end_ / unit_, 1.0);
    lanes_.x_label = fmt::format("{} since the first of these steps began{}",
                                 unit_ == 1.0 ? "milliseconds" : "seconds",
                                 knots.size() > 2 ? "; the scale changes at each break" : "");
  }

  void legend() {
    auto& kinds = lanes_.kinds;
    kinds.emplace_back(Lanes::Kind::kWhole, "step");
    const char* names[] = {"forward (top)", "backward (middle)", "collective (bottom)"};
    for (int i = 0; i < 3; ++i) {
      if (used_[i]) kinds.emplace_back(kind_of(static_cast<Phases::Activity>(i)), names[i]);
    }
    const auto some = [&](Lanes::Kind kind) {
      return std::any_of(lanes_.lanes.begin(), lanes_.lanes.end(), [&](const auto& lane) {
        return std::any_of(lane.spans.begin(), lane.spans.end(),
                           [&](const auto& span) { return span.kind == kind; });
      });
    };
    if (some(Lanes::Kind::kHollow)) kinds.emplace_back(Lanes::Kind::kHollow, "examination");
    if (some(Lanes::Kind::kOpen)) kinds.emplace_back(Lanes::Kind::kOpen, "never completed");
  }

  const Phases& phases_;
  std::vector<std::string>& notes_;
  Lanes lanes_;
  double steps_end_ = 0.0, first_end_ = 0.0, all_end_ = 0.0, unit_ = 1.0;
  std::size_t blocks_ = 0;
  bool any_call_ = false;
  bool used_[3] = {};
};

}  // namespace

Lanes phase_lanes(const RunReport& run, std::vector<std::string>& notes) {
  if (run.phases.ranks.empty()) {
    notes.emplace_back("Unknown: this report was made without the times in the records.");
    return {};
  }
  return LanesMaker(run.phases, notes).make();
}

}  // namespace ddp_doctor
