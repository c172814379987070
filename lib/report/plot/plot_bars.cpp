// SPDX-License-Identifier: BSD-3-Clause
// Horizontal bars, and lanes over time.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lib/report/plot/plot_canvas.h"

namespace ddp_doctor::plot {
namespace {

constexpr double kBarRow = 40.0;
constexpr double kLane = 24.0;     // high, in three rows where a block has parts
constexpr double kLaneGap = 12.0;  // below it, with its remark
constexpr double kMargin = 18.0;   // for half a tick's label

// The x axis below `y`, from where the scale begins.
void axis_below(Canvas& canvas, const Scale& scale, double left, double right, double y,
                const std::string& label) {
  canvas.line(left, y, right, y, "axis");
  for (const double tick : scale.ticks()) {
    canvas.line(scale(tick), y, scale(tick), y + 4, "axis");
    canvas.text(scale(tick), y + 17, Anchor::kMiddle, tick_text(tick), "faint");
  }
  canvas.text((left + right) / 2, y + 33, Anchor::kMiddle, label, "faint");
}

// Where in a lane a kind of span lies, and its class.
struct Stripe {
  double top, height;
  const char* classes;
};

Stripe stripe_of(Lanes::Kind kind) {
  using Kind = Lanes::Kind;
  constexpr double kThird = kLane / 3;
  switch (kind) {
    case Kind::kWhole:
      return {0, kLane, "whole"};
    case Kind::kHollow:
      return {.5, kLane - 1, "hollow"};
    case Kind::kFirst:
      return {1, kThird - 1.5, "part0"};
    case Kind::kSecond:
      return {kThird + .25, kThird - 1, "part1"};
    case Kind::kThird:
      return {2 * kThird, kThird - 1, "part2"};
    case Kind::kOpen:
      return {.75, kLane - 1.5, "open"};
  }
  return {0, kLane, "whole"};
}

void draw_span(Canvas& canvas, Lanes::Kind kind, double x, double y, double width,
               const std::string& hint) {
  const auto [top, height, classes] = stripe_of(kind);
  canvas.box(x, y + top, std::max(width, 0.6), height, classes, hint);
}

// Between two knots as a scale of its own.
class BrokenScale {
 public:
  BrokenScale(std::vector<std::pair<double, double>> knots, double left, double right)
      : knots_(std::move(knots)), left_(left), right_(right) {}

  double operator()(double value) const {
    std::size_t i = 1;
    while (i + 1 < knots_.size() && value > knots_[i].first) ++i;
    const auto [low, from] = knots_[i - 1];
    const auto [high, to] = knots_[i];
    const double share = high > low ? (value - low) / (high - low) : 0.0;
    return left_ + std::clamp(from + share * (to - from), 0.0, 1.0) * (right_ - left_);
  }

  // Each piece with ticks of its own, a break where the next begins.
  void axis(Canvas& canvas, double y, const std::string& label) const {
    canvas.line(left_, y, right_, y, "axis");
    double free_from = 0.0;
    for (std::size_t i = 1; i < knots_.size(); ++i) {
      const double low = knots_[i - 1].first;
      const double high = knots_[i].first;
      const double width = (*this)(high)-left_ - (knots_[i - 1].second * (right_ - left_));
      const auto max_ticks = static_cast<std::size_t>(std::max(width / 90, 1.0));
      const Scale piece = Scale::linear(low, high, max_ticks);
      for (const double tick : piece.ticks()) {
        if (tick < low || tick > high || (tick == low && i > 1)) continue;
        const double x = (*this)(tick);
        const double half = width_of(tick_text(tick)) / 2;
        if (x - half < free_from || x + half > kWide) continue;
        canvas.line(x, y, x, y + 4, "axis");
        canvas.text(x, y + 17, Anchor::kMiddle, tick_text(tick), "faint");
        free_from = x + half + 10;
      }
      if (i + 1 < knots_.size()) {
        const double x = (*this)(high);
        canvas.line(x, 4, x, y, "grid dotted");
        canvas.path(
            move_to(x - 4, y + 5) + line_to(x, y - 5) + move_to(x, y + 5) + line_to(x + 4, y - 5),
            "axis");
      }
    }
    canvas.text((left_ + right_) / 2, y + 33, Anchor::kMiddle, label, "faint");
  }

 private:
  std::vector<std::pair<double, double>> knots_;
  double left_, right_;
};

}  // namespace

Drawing draw(const Bars& bars, const Caption& caption) {
  Canvas canvas;
  double max = 0.0;
  for (const auto& row : bars.rows) max = std::max({max, row.value, row.high});
  Scale scale = Scale::linear(0.0, max, 5);
  scale.stretch(kMargin, kNarrow - kMargin);
  const double bottom = 6 + kBarRow * static_cast<double>(bars.rows.size());
  for (const double tick : scale.ticks()) canvas.line(scale(tick), 2, scale(tick), bottom, "grid");
  double y = 6;
  for (const auto& row : bars.rows) {
    const double text_width = width_of(row.text);
    canvas.text(kMargin + 3, y + 12, Anchor::kStart,
                fitted(row.label, kNarrow - 2 * kMargin - text_width - 20), "halo");
    canvas.text(kNarrow - kMargin, y + 12, Anchor::kEnd, row.text, "faint halo");
    canvas.box(kMargin, y + 17, std::max(scale(row.value) - kMargin, 1.0), 14, "bar", row.text);
    if (row.high > row.low) {
      const double middle = y + 24;
      canvas.path(move_to(scale(row.low), middle) + line_to(scale(row.high), middle) +
                      move_to(scale(row.low), middle - 4) + line_to(scale(row.low), middle + 4) +
                      move_to(scale(row.high), middle - 4) + line_to(scale(row.high), middle + 4),
                  "range");
    }
    y += kBarRow;
  }
  axis_below(canvas, scale, kMargin, kNarrow - kMargin, bottom, bars.x_label);
  return {canvas.finish(kNarrow, bottom + 38, caption), {}};
}

Drawing draw(const Lanes& lanes, const Caption& caption) {
  Canvas canvas;
  double widest = 0.0;
  for (const auto& lane : lanes.lanes) widest = std::max(widest, width_of(lane.label));
  const double left = std::min(widest, 200.0) + 12;
  const double right = kWide - kMargin;
  const BrokenScale scale(lanes.knots, left, right);
  const bool remarks = std::any_of(lanes.lanes.begin(), lanes.lanes.end(),
                                   [](const auto& lane) { return !lane.remark.empty(); });
  const double row = kLane + (remarks ? kLaneGap + 10 : kLaneGap);
  const double bottom = 6 + row * static_cast<double>(lanes.lanes.size());
  scale.axis(canvas, bottom, lanes.x_label);
  double y = 6;
  for (const auto& lane : lanes.lanes) {
    canvas.text(left - 8, y + 16, Anchor::kEnd, fitted(lane.label, 200.0));
    std::map<Lanes::Kind, std::string> paths;  // of those without a text of their own
    for (const auto& span : lane.spans) {
      const double from = scale(span.from);
      const double width = std::max(scale(span.to) - from, 0.6);
      if (!span.text.empty()) {
        draw_span(canvas, span.kind, from, y, width, span.text);
        continue;
      }
      const auto [top, height, classes] = stripe_of(span.kind);
      paths[span.kind] += box_path(from, y + top, width, height);
    }
    for (const auto& [kind, path] : paths) canvas.path(path, stripe_of(kind).classes);
    if (!lane.remark.empty())
      canvas.text(left, y + kLane + 13, Anchor::kStart, fitted(lane.remark, right - left),
                  "halo faint");
    y += row;
  }
  Drawing drawing{canvas.finish(kWide, bottom + 38, caption), {}};
  for (const auto& [kind, label] : lanes.kinds) {
    Canvas swatch;
    const auto [top, height, classes] = stripe_of(kind);
    const bool part = height < kLane / 2;
    if (part) swatch.box(0.3, 0.3, 33.4, 13.4, "whole");
    // A lane is higher than a swatch.
    swatch.box(part ? 0.3 : 0.8, part ? top * 13 / kLane : 0.8, part ? 33.4 : 32.4,
               part ? 4.5 : 12.4, classes);
    drawing.keys.push_back({swatch.finish_swatch(), label});
  }
  return drawing;
}

}  // namespace ddp_doctor::plot
