// SPDX-License-Identifier: BSD-3-Clause
// Heat maps.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lib/report/plot/plot_canvas.h"

namespace ddp_doctor::plot {
namespace {

constexpr double kMaxCell = 30.0;
constexpr double kRow = 16.0;
constexpr double kGroupGap = 5.0;
constexpr double kRightEdge = kWide - 26.0;

class CellsDrawing {
 public:
  explicit CellsDrawing(const HeatMap& map) : map_(map) {
    double group = 0.0;
    double label = 0.0;
    for (const auto& row : map_.rows) {
      group = std::max(group, std::min(width_of(row.group), 250.0));
      label = std::max(label, std::min(width_of(row.label), 250.0));
    }
    group_right_ = group + 2;
    label_right_ = group_right_ + (label > 0.0 ? label + 12 : 0.0);
    left_ = label_right_ + 10;
    const auto columns = static_cast<double>(std::max<std::size_t>(map_.first.size(), 1));
    cell_ = std::min((kRightEdge - left_) / columns, kMaxCell);
    gap_ = cell_ >= 8 ? 1.5 : cell_ >= 4 ? 0.5 : 0.0;
  }

  Drawing draw(const Caption& caption) {
    double y = 4;
    for (std::size_t i = 0; i < map_.rows.size(); ++i) {
      const auto& row = map_.rows[i];
      if (i > 0 && !row.group.empty()) y += kGroupGap;
      if (!row.group.empty())
        canvas_.text(group_right_, y + 12.5, Anchor::kEnd, fitted(row.group, group_right_));
      if (!row.label.empty())
        canvas_.text(label_right_, y + 12.5, Anchor::kEnd,
                     fitted(row.label, label_right_ - group_right_ - 8), "faint");
      cells(row, y);
      y += kRow;
    }
    axis(y + 3);
    return {canvas_.finish(kWide, y + 41, caption), keys()};
  }

 private:
  // Equal neighbours become one box where cells are too small to be told apart.
  void cells(const HeatMap::Row& row, double y) {
    std::string full;
    std::string none;
    std::string crosses;
    std::string frames;
    std::string parts;
    std::string unknown;
    const double height = kRow - 2;
    for (std::size_t i = 0; i < row.shares.size();) {
      std::size_t end = i + 1;
      while (gap_ < 1 && end < row.shares.size() && row.shares[end] == row.shares[i]) ++end;
      const double x = left_ + static_cast<double>(i) * cell_;
      const double width = static_cast<double>(end - i) * cell_ - gap_;
      const auto& share = row.shares[i];
      if (!share) {
        unknown += move_to(x + width / 2 - 1.5, y + height / 2 + 1) +
                   line_to(x + width / 2 + 1.5, y + height / 2 + 1);
      } else if (*share >= 1.0) {
        full += box_path(x, y + 1, width, height);
      } else if (*share <= 0.0) {
        none += box_path(x + .75, y + 1.75, std::max(width - 1.5, .5), height - 1.5);
        if (width > 7)
          crosses += move_to(x + width / 2 - 3, y + 5) + line_to(x + width / 2 + 3, y + kRow - 5) +
                     move_to(x + width / 2 + 3, y + 5) + line_to(x + width / 2 - 3, y + kRow - 5);
      } else {
        // Neither nearly none nor nearly all may look as if it were.
        const double filled = std::clamp(height * *share, 2.5, height - 2.5);
        // Of many frames side by side only what says how high a cell is.
        frames += width > 6 ? box_path(x + .75, y + 1.75, width - 1.5, height - 1.5)
                            : move_to(x, y + 1.75) + line_to(x + width, y + 1.75);
        parts += box_path(x, y + 1 + height - filled, width, filled);
      }
      i = end;
    }
    canvas_.path(full, "used");
    canvas_.path(none, "unused");
    canvas_.path(crosses, "unused");
    canvas_.path(parts, "used");
    canvas_.path(frames, "unused");
    canvas_.path(unknown, "axis");
  }

  void axis(double y) {
    if (map_.first.empty()) return;
    const double right = left_ + cell_ * static_cast<double>(map_.first.size());
    canvas_.line(left_, y, right - gap_, y, "axis");
    const double widest = width_of(std::to_string(map_.last.back())) + 14;
    const auto every =
        static_cast<std::size_t>(std::max(1.0, std::ceil(widest / std::max(cell_, .01))));
    for (std::size_t i = 0; i < map_.first.size(); i += every) {
      const double x = left_ + (static_cast<double>(i) + .5) * cell_ - gap_ / 2;
      canvas_.line(x, y, x, y + 4, "axis");
      canvas_.text(x, y + 17, Anchor::kMiddle, std::to_string(map_.first[i]), "faint");
    }
    canvas_.text(left_, y + 33, Anchor::kStart, map_.x_label, "faint");
  }

  std::vector<Key> keys() const {
    bool full = false;
    bool part = false;
    bool none = false;
    bool unknown = false;
    for (const auto& row : map_.rows) {
      for (const auto& share : row.shares) {
        if (!share)
          unknown = true;
        else if (*share >= 1.0)
          full = true;
        else if (*share <= 0.0)
          none = true;
        else
          part = true;
      }
    }
    std::vector<Key> keys;
    const auto add = [&](bool there, const std::string& label, const auto& fill) {
      if (!there) return;
      Canvas swatch;
      fill(swatch);
      keys.push_back({swatch.finish_swatch(), label});
    };
    add(full, map_.full, [](Canvas& c) { c.path(box_path(7, 0, 20, 14), "used"); });
    add(part, map_.part, [](Canvas& c) {
      c.path(box_path(7, 8, 20, 6), "used");
      c.path(box_path(7.75, .75, 18.5, 12.5), "unused");
    });
    add(none, map_.none, [](Canvas& c) {
      c.path(box_path(7.75, .75, 18.5, 12.5), "unused");
      c.path("M14 4L20 10M20 4L14 10", "unused");
    });
    add(unknown, "not known", [](Canvas& c) { c.path("M15.5 7L18.5 7", "axis"); });
    return keys;
  }

  const HeatMap& map_;
  Canvas canvas_;
  double group_right_ = 0.0, label_right_ = 0.0, left_ = 0.0, cell_ = 0.0, gap_ = 0.0;
};

}  // namespace

Drawing draw(const HeatMap& map, const Caption& caption) { return CellsDrawing(map).draw(caption); }

}  // namespace ddp_doctor::plot
