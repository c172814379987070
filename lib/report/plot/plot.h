// SPDX-License-Identifier: BSD-3-Clause
// Plots as SVG: values in, text out. Nothing here knows what a report is.
//
// Drawings are accessible: colours are classes and CSS variables (style()), so that one text serves
// light and dark pages; nothing is distinguished by colour alone, but also by dashes, markers,
// positions or hollow shapes; every figure has a title and a description for screen readers. Text
// is spaced by an estimate of its width that holds for the usual sans-serif fonts, including the
// wide DejaVu Sans.
//
// Values that a scale cannot show are not dropped: values that are not finite are in a strip above
// the scale, values of zero or less in a strip below a logarithmic one, and missing ones leave a
// gap.
//
// Sizes are those of the SVG's own coordinates, in which text is 12 high. A narrow drawing is made
// to be shown about 300 to 550 pixels wide, a wide one about 700 to 1100.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ddp_doctor::plot {

// What a drawing is called. `id`: unique in the page.
struct Caption {
  std::string id;
  std::string title;
  std::string description;
};

// An entry of the legend: a small SVG, and what it stands for.
struct Key {
  std::string swatch;
  std::string label;
};

struct Drawing {
  std::string svg;
  std::vector<Key> keys;  // empty if there is nothing to distinguish
};

using Values = std::vector<std::optional<double>>;  // empty: unknown

struct Line {
  std::string label;
  Values y;
};

// Lines over whole numbers, and a band behind them. More than kMaxLines lines would look alike;
// the caller decides which to show.
struct LineChart {
  static constexpr std::size_t kMaxLines = 8;
  struct Band {
    std::string label;
    Values low, high;
  };

  std::string x_label = "step";
  std::string y_label;
  bool logarithmic = false;
  std::string above = "not finite";  // what the strip above the scale is for
  std::vector<std::int64_t> x;       // ascending; each line has a value for each
  std::vector<Line> lines;
  std::optional<Band> band;
};

// A heat map of shares, 0 to 1: as a full, a hollow or a partly filled cell.
struct HeatMap {
  struct Row {
    std::string group;  // empty: that of the row above
    std::string label;
    Values shares;
  };
  std::string x_label = "step";
  std::vector<std::int64_t> first, last;  // what each column covers
  std::vector<Row> rows;
  std::string full, part, none;  // what these cells mean
};

// Horizontal bars from zero, each with the range around its value.
struct Bars {
  struct Row {
    std::string label;
    double value = 0.0;
    double low = 0.0;
    double high = 0.0;
    std::string text;  // the figure in words
  };
  std::string x_label;
  std::vector<Row> rows;
};

// What each of several actors did when. What takes most of a block's time is a span of its `whole`;
// parts lie above it, in rows of their own.
struct Lanes {
  enum class Kind { kWhole, kHollow, kFirst, kSecond, kThird, kOpen };
  struct Span {
    Kind kind = Kind::kWhole;
    double from = 0.0;
    double to = 0.0;
    std::string text = {};  // shown by a browser when pointed at; without one it is smaller
  };
  struct Lane {
    std::string label;
    std::vector<Span> spans;
    std::string remark;  // below the lane: how it ended
  };
  std::string x_label;
  // Where the scale changes: values and their positions, 0 (left) to 1. At least two. Without this,
  // a pause of seconds would hide steps of milliseconds.
  std::vector<std::pair<double, double>> knots;
  std::vector<Lane> lanes;
  std::vector<std::pair<Kind, std::string>> kinds;  // for the legend
};

Drawing draw(const LineChart& chart, const Caption& caption);
Drawing draw(const HeatMap& map, const Caption& caption);
Drawing draw(const Bars& bars, const Caption& caption);
Drawing draw(const Lanes& lanes, const Caption& caption);

// The CSS of all drawings. Expects the variables --text, --faint, --line, --page and --error.
const char* style();

}  // namespace ddp_doctor::plot
