// SPDX-License-Identifier: BSD-3-Clause
// Lines over steps.
//
// From top to bottom: the label of the y axis, a strip for what is not finite, the scale, on
// logarithmic ones a strip for zeros, the x axis. Empty strips are omitted. If the scale has no
// values, it is omitted, too: a run whose drift is always zero is a line in its strip.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lib/report/plot/plot_canvas.h"

namespace ddp_doctor::plot {
namespace {

constexpr double kTop = 22.0;
constexpr double kStrip = 20.0;
constexpr double kScaleHeight = 150.0;
constexpr double kBelow = 38.0;
constexpr double kRight = 14.0;
// Up to this many points have a marker each; of more, only some.
constexpr std::size_t kMaxMarked = 25;

bool on_scale(double value, bool logarithmic) {
  return std::isfinite(value) && (!logarithmic || value > 0.0);
}

// Four shapes, then the same hollow.
void mark(Canvas& canvas, double x, double y, std::size_t number) {
  constexpr double kSize = 3.2;
  const std::string classes = fmt::format("mark {}{}", number < 4 ? "f" : "o", number);
  switch (number % 4) {
    case 0:
      canvas.path(fmt::format("{0}a{1} {1} 0 1 0 {2} 0a{1} {1} 0 1 0 -{2} 0z",
                              move_to(x - kSize, y), kSize, 2 * kSize),
                  classes);
      break;
    case 1:
      canvas.path(box_path(x - kSize, y - kSize, 2 * kSize, 2 * kSize), classes);
      break;
    case 2:
      canvas.path(move_to(x, y - kSize - 1) + line_to(x + kSize + .6, y + kSize) +
                      line_to(x - kSize - .6, y + kSize) + "z",
                  classes);
      break;
    default:
      canvas.path(move_to(x, y - kSize - 1) + line_to(x + kSize + 1, y) +
                      line_to(x, y + kSize + 1) + line_to(x - kSize - 1, y) + "z",
                  classes);
  }
}

class LinesDrawing {
 public:
  explicit LinesDrawing(const LineChart& chart) : chart_(chart) {
    for (const auto& line : chart_.lines) look_at(line.y);
    if (chart_.band) {
      look_at(chart_.band->low);
      look_at(chart_.band->high);
    }
  }

  Drawing draw(const Caption& caption) {
    lay_out();
    axes();
    if (chart_.band) band(*chart_.band);
    for (std::size_t i = 0; i < chart_.lines.size(); ++i) line(chart_.lines[i], i);
    return {canvas_.finish(kNarrow, bottom_ + kBelow, caption), keys()};
  }

 private:
  void look_at(const Values& values) {
    for (const auto& value : values) {
      if (!value) continue;
      if (on_scale(*value, chart_.logarithmic)) {
        min_ = scaled_ ? std::min(min_, *value) : *value;
        max_ = scaled_ ? std::max(max_, *value) : *value;
        scaled_ = true;
      } else {
        (std::isfinite(*value) ? zeros_ : above_) = true;
      }
    }
  }

  void lay_out() {
    above_at_ = kTop + kStrip / 2;
    scale_top_ = kTop + (above_ ? kStrip : 0.0) + 6;
    scale_bottom_ = scale_top_ + (scaled_ ? kScaleHeight : 0.0);
    zero_at_ = scale_bottom_ + (scaled_ ? kStrip - 2 : kStrip / 2);
    bottom_ = zeros_ ? zero_at_ + 8 : scale_bottom_ + (scaled_ ? 0.0 : kStrip);
    if (scaled_) {
      // A scale that begins at zero shows ratios; one that would waste more than half does not.
      const double low = min_ > 0.0 && min_ < 0.6 * max_ ? 0.0 : min_;
      y_ = chart_.logarithmic ? Scale::logarithmic(min_, max_, 6) : Scale::linear(low, max_, 5);
      y_.stretch(scale_bottom_, scale_top_);
    }
    double widest = zeros_ ? width_of("0") : 0.0;
    if (scaled_) {
      for (const double tick : y_.ticks()) widest = std::max(widest, width_of(tick_text(tick)));
    }
    left_ = std::max(widest + 10, 26.0);
    if (!chart_.x.empty()) {
      const auto first = static_cast<double>(chart_.x.front());
      const auto last = static_cast<double>(chart_.x.back());
      const double widest_step = width_of(tick_text(last)) + 24;
      const auto max_ticks = static_cast<std::size_t>((kNarrow - left_ - kRight) / widest_step);
      x_ = Scale::linear(first, last, std::clamp<std::size_t>(max_ticks, 2, 8), true);
    }
    x_.stretch(left_ + 8, kNarrow - kRight - 6);
  }

  void axes() {
    canvas_.text(0, kTextSize, Anchor::kStart, chart_.y_label, "faint");
    if (above_) {
      canvas_.text(kNarrow - kRight, kTextSize, Anchor::kEnd, "× " + chart_.above, "faint");
      canvas_.line(left_, kTop + kStrip, kNarrow - kRight, kTop + kStrip, "grid dotted");
    }
    if (scaled_) {
      for (const double tick : y_.ticks()) {
        canvas_.line(left_, y_(tick), kNarrow - kRight, y_(tick), "grid");
        canvas_.text(left_ - 6, y_(tick) + 4, Anchor::kEnd, tick_text(tick), "faint");
      }
    }
    if (zeros_) {
      canvas_.line(left_, zero_at_, kNarrow - kRight, zero_at_, "grid");
      canvas_.text(left_ - 6, zero_at_ + 4, Anchor::kEnd, "0", "faint");
    }
    canvas_.line(left_, bottom_, kNarrow - kRight, bottom_, "axis");
    for (const double tick : x_.ticks()) {
      canvas_.line(x_(tick), bottom_, x_(tick), bottom_ + 4, "axis");
      canvas_.text(x_(tick), bottom_ + 17, Anchor::kMiddle, tick_text(tick), "faint");
    }
    canvas_.text((left_ + kNarrow - kRight) / 2, bottom_ + 33, Anchor::kMiddle, chart_.x_label,
                 "faint");
  }

  double at(std::size_t index) const { return x_(static_cast<double>(chart_.x[index])); }
  double height_of(double value) const {
    if (on_scale(value, chart_.logarithmic)) return y_(value);
    return std::isfinite(value) ? zero_at_ : above_at_;
  }

  void band(const LineChart::Band& band) {
    std::string there;
    std::string back;
    for (std::size_t i = 0; i < chart_.x.size(); ++i) {
      const auto& low = band.low[i];
      const auto& high = band.high[i];
      if (!low || !high || !std::isfinite(*low) || !std::isfinite(*high)) continue;
      there += there.empty() ? move_to(at(i), height_of(*high)) : line_to(at(i), height_of(*high));
      back = line_to(at(i), height_of(*low)) + back;
    }
    if (!there.empty()) canvas_.path(there + back + "z", "band");
  }

  void line(const Line& line, std::size_t number) {
    std::string commands;
    bool drawing = false;
    std::size_t seen = 0;
    for (std::size_t i = 0; i < line.y.size(); ++i) {
      const auto& value = line.y[i];
      seen += value.has_value();
      if (!value || !(std::isfinite(*value))) {
        drawing = false;
        continue;
      }
      commands += drawing ? line_to(at(i), height_of(*value)) : move_to(at(i), height_of(*value));
      drawing = true;
    }
    canvas_.path(commands, fmt::format("line l{}", number));
    // Markers of one line stand beside those of another.
    const std::size_t every = seen <= kMaxMarked ? 1 : seen / 8;
    std::size_t count = every * number / LineChart::kMaxLines;
    for (std::size_t i = 0; i < line.y.size(); ++i) {
      const auto& value = line.y[i];
      if (!value) continue;
      if (!std::isfinite(*value)) {
        cross(at(i), above_at_, number);
        continue;
      }
      const bool alone = (i == 0 || !line.y[i - 1]) && (i + 1 == line.y.size() || !line.y[i + 1]);
      if (alone || count++ % every == 0) mark(canvas_, at(i), height_of(*value), number);
    }
  }

  void cross(double x, double y, std::size_t number) {
    canvas_.path(move_to(x - 4, y - 4) + line_to(x + 4, y + 4) + move_to(x - 4, y + 4) +
                     line_to(x + 4, y - 4),
                 fmt::format("mark o{}", number));
  }

  std::vector<Key> keys() const {
    std::vector<Key> keys;
    for (std::size_t i = 0; i < chart_.lines.size(); ++i) {
      Canvas swatch;
      swatch.line(0, 7, 34, 7, fmt::format("line l{}", i));
      mark(swatch, 17, 7, i);
      keys.push_back({swatch.finish_swatch(), chart_.lines[i].label});
    }
    if (chart_.band) {
      Canvas swatch;
      swatch.box(0, 1, 34, 12, "band");
      keys.push_back({swatch.finish_swatch(), chart_.band->label});
    }
    return keys;
  }

  const LineChart& chart_;
  Canvas canvas_;
  Scale x_, y_;
  bool scaled_ = false, zeros_ = false, above_ = false;
  double min_ = 0.0, max_ = 0.0;
  double left_ = 0.0, bottom_ = 0.0;
  double above_at_ = 0.0, scale_top_ = 0.0, scale_bottom_ = 0.0, zero_at_ = 0.0;
};

}  // namespace

Drawing draw(const LineChart& chart, const Caption& caption) {
  return LinesDrawing(chart).draw(caption);
}

}  // namespace ddp_doctor::plot
