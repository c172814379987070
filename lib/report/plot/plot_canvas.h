// SPDX-License-Identifier: BSD-3-Clause
// What the plots are drawn with: a canvas that collects SVG, and scales with ticks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/report/plot/plot.h"

namespace ddp_doctor::plot {

inline constexpr double kTextSize = 12.0;
inline constexpr double kNarrow = 420.0;
inline constexpr double kWide = 860.0;

// An upper estimate.
double width_of(const std::string& text);
// With an ellipsis in the middle if it is wider than that.
std::string fitted(const std::string& text, double width);
// "12", "0.25", "1e-9"
std::string tick_text(double value);

enum class Anchor { kStart, kMiddle, kEnd };

class Canvas {
 public:
  void text(double x, double y, Anchor anchor, const std::string& text,
            std::string_view classes = "");
  void line(double x1, double y1, double x2, double y2, std::string_view classes);
  // `hint`: what a browser shows on hover.
  void box(double x, double y, double width, double height, std::string_view classes,
           const std::string& hint = "");
  void path(const std::string& commands, std::string_view classes);
  std::string finish(double width, double height, const Caption& caption) const;
  // A legend's swatch, 34 by 14.
  std::string finish_swatch() const;

 private:
  std::string body_;
};

// Commands of a path, with a tenth of a pixel for precision.
std::string move_to(double x, double y);
std::string line_to(double x, double y);
std::string box_path(double x, double y, double width, double height);

// A scale from values to coordinates.
class Scale {
 public:
  // Linear, from tick to tick around `low` and `high`, with at most about `max_ticks` ticks.
  // `whole`: at whole numbers only, and from `low` to `high` exactly.
  static Scale linear(double low, double high, std::size_t max_ticks, bool whole = false);
  // By decades; `low` and `high` are greater than zero.
  static Scale logarithmic(double low, double high, std::size_t max_ticks);

  void stretch(double from, double to) { from_ = from, to_ = to; }
  double operator()(double value) const;
  const std::vector<double>& ticks() const { return ticks_; }

 private:
  bool logarithmic_ = false;
  double low_ = 0.0, high_ = 1.0;  // of logarithmic ones the exponents
  double from_ = 0.0, to_ = 1.0;
  std::vector<double> ticks_;
};

}  // namespace ddp_doctor::plot
