// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/plot/plot_canvas.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/report/plot/markup.h"

namespace ddp_doctor::plot {
namespace {

bool starts_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

std::size_t characters_of(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), starts_character));
}

// The first or last `count` characters.
std::string first_of(const std::string& text, std::size_t count) {
  std::size_t end = 0;
  while (end < text.size() && (count > 0 || !starts_character(text[end]))) {
    if (starts_character(text[end])) --count;
    ++end;
  }
  return text.substr(0, end);
}
std::string last_of(const std::string& text, std::size_t count) {
  std::size_t begin = text.size();
  while (begin > 0 && count > 0) {
    if (starts_character(text[--begin])) --count;
  }
  return text.substr(begin);
}

std::string coordinate(double value) {
  std::string text = fmt::format("{:.1f}", value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text == "-0" ? "0" : text;
}

std::string with_classes(std::string_view classes) {
  return classes.empty() ? "" : fmt::format(" class=\"{}\"", classes);
}

constexpr double kMax = std::numeric_limits<double>::max();
// Of ten, as doubles of full precision have them.
constexpr double kLeastPower = -307.0;
constexpr double kGreatestPower = 308.0;

// The smallest 1, 2 or 5 times a power of ten that is not below `value`.
double round_up(double value) {
  const double power = std::pow(10.0, std::floor(std::log10(value)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= value * (1 - 1e-9)) return factor * power;
  }
  return 10.0 * power;
}

}  // namespace

double width_of(const std::string& text) {
  return 0.64 * kTextSize * static_cast<double>(characters_of(text));
}

std::string fitted(const std::string& text, double width) {
  if (width_of(text) <= width) return text;
  const auto max_size = static_cast<std::size_t>(std::max(3.0, width / (0.64 * kTextSize)));
  const std::size_t head = (max_size - 1) / 2;
  return first_of(text, head) + "…" + last_of(text, max_size - 1 - head);
}

std::string tick_text(double value) {
  const double size = std::fabs(value);
  if (size == 0.0 || (size < 1e5 && size > 9e-4)) return fmt::format("{:.6g}", value);
  // Without the zeros that printf puts into exponents.
  const auto power = static_cast<int>(std::floor(std::log10(size) + 1e-9));
  return fmt::format("{:.3g}e{}", value / std::pow(10.0, power), power);
}

void Canvas::text(double x, double y, Anchor anchor, const std::string& text,
                  std::string_view classes) {
  const char* side = anchor == Anchor::kStart    ? ""
                     : anchor == Anchor::kMiddle ? " text-anchor=\"middle\""
                                                 : " text-anchor=\"end\"";
  body_ += fmt::format("<text x=\"{}\" y=\"{}\"{}{}>{}</text>\n", coordinate(x), coordinate(y),
                       side, with_classes(classes), escaped(text));
}

void Canvas::line(double x1, double y1, double x2, double y2, std::string_view classes) {
  path(move_to(x1, y1) + line_to(x2, y2), classes);
}

void Canvas::box(double x, double y, double width, double height, std::string_view classes,
                 const std::string& hint) {
  body_ += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"{}", coordinate(x),
                       coordinate(y), coordinate(width), coordinate(height), with_classes(classes));
  body_ += hint.empty() ? "/>\n" : fmt::format("><title>{}</title></rect>\n", escaped(hint));
}

void Canvas::path(const std::string& commands, std::string_view classes) {
  if (!commands.empty())
    body_ += fmt::format("<path d=\"{}\"{}/>\n", commands, with_classes(classes));
}

std::string Canvas::finish(double width, double height, const Caption& caption) const {
  return fmt::format(
      "<svg class=\"plot\" role=\"img\" aria-labelledby=\"{0}-title {0}-description\" "
      "viewBox=\"0 0 {1} {2}\">\n<title id=\"{0}-title\">{3}</title>\n"
      "<desc id=\"{0}-description\">{4}</desc>\n{5}</svg>\n",
      caption.id, coordinate(width), coordinate(height), escaped(caption.title),
      escaped(caption.description), body_);
}

std::string Canvas::finish_swatch() const {
  return fmt::format(
      "<svg class=\"plot swatch\" aria-hidden=\"true\" viewBox=\"0 0 34 14\">{}</svg>", body_);
}

std::string move_to(double x, double y) {
  return fmt::format("M{} {}", coordinate(x), coordinate(y));
}
std::string line_to(double x, double y) {
  return fmt::format("L{} {}", coordinate(x), coordinate(y));
}
std::string box_path(double x, double y, double width, double height) {
  return fmt::format("M{} {}h{}v{}h-{}z", coordinate(x), coordinate(y), coordinate(width),
                     coordinate(height), coordinate(width));
}

Scale Scale::linear(double low, double high, std::size_t max_ticks, bool whole) {
  Scale scale;
  if (high <= low) {
    const double room = whole ? 0.5 : low == 0.0 ? 1.0 : std::fabs(low) / 2;
    high = std::min(low + room, kMax);
    if (low != 0.0 || whole) low = std::max(low - room, -kMax);
  }
  const auto parts = static_cast<double>(std::max<std::size_t>(max_ticks, 2));
  double step = round_up(std::max(high / parts - low / parts, 1e-300));
  if (whole) step = std::max(1.0, step);
  const double first = whole ? std::ceil(low / step) : std::floor(low / step + 1e-9);
  const double last = whole ? std::floor(high / step) : std::ceil(high / step - 1e-9);
  for (double k = first; k <= last; ++k) {
    if (std::isfinite(k * step)) scale.ticks_.push_back(k * step);
  }
  scale.low_ = whole ? low : std::max(first * step, -kMax);
  scale.high_ = whole ? high : std::min(last * step, kMax);
  return scale;
}

Scale Scale::logarithmic(double low, double high, std::size_t max_ticks) {
  Scale scale;
  scale.logarithmic_ = true;
  scale.low_ = std::max(kLeastPower, std::floor(std::log10(low) + 1e-9));
  scale.high_ = std::min(kGreatestPower, std::ceil(std::log10(high) - 1e-9));
  if (scale.high_ <= scale.low_) scale.high_ = scale.low_ + 1;
  const double every =
      std::max(1.0, std::ceil((scale.high_ - scale.low_) / static_cast<double>(max_ticks)));
  for (double power = scale.low_; power <= scale.high_; power += every)
    scale.ticks_.push_back(std::pow(10.0, power));
  return scale;
}

double Scale::operator()(double value) const {
  const double place =
      logarithmic_ ? std::clamp(std::log10(value), kLeastPower, kGreatestPower) : value;
  // In halves, so that the largest numbers have a difference.
  const double share = (place / 2 - low_ / 2) / (high_ / 2 - low_ / 2);
  return from_ + share * (to_ - from_);
}

}  // namespace ddp_doctor::plot
