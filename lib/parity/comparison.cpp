// SPDX-License-Identifier: BSD-3-Clause
#include "lib/parity/comparison.h"

#include <algorithm>
#include <cmath>

namespace ddp_doctor {
namespace {

// Sums of other lengths round differently.
constexpr double kFloor = 1e-5;
// float16 and bfloat16: a few units of their last place.
constexpr double kLowPrecisionFloor = 3e-2;
// A gradient that is zero but for rounding counts as rounding of the whole.
constexpr double kTiny = 1e-6;

}  // namespace

double floor_of(const ParityFigures& figures) {
  return figures.low_precision ? kLowPrecisionFloor : kFloor;
}

double least_allowed(const Products& products, const Products& total, double floor) {
  return floor * std::max(products.norm(kOfOne), kTiny / kFloor * total.norm(kOfOne));
}

Products total_of(const ParityStep& step) {
  Products total;
  for (const auto& parameter : step.parameters) total += parameter.products;
  return total;
}

Comparison::Comparison(const ParityStep& step, const ParityFigures& figures, bool changes)
    : step_(step),
      figures_(figures),
      changes_(changes),
      floor_(floor_of(figures)),
      total_(total_of(step)) {
  for (const auto& parameter : step.parameters) {
    const auto& products = parameter.products;
    if (products.distance(kOfRanks, kOfOne) <= allowed(products)) {
      equal_.push_back(&parameter);
      continue;
    }
    const double k = products.scale(kOfRanks, kOfOne);
    const double rest = products.distance(kOfRanks, kOfOne, k);
    const double length = products.norm(kOfOne);
    different_.push_back({&parameter, k, length > 0 ? rest / length : INFINITY,
                          length > 0 && rest <= allowed(products) * std::max(1.0, std::abs(k))});
  }
}

ComparedStep Comparison::compared() const {
  const double length = total_.size() > 0 ? total_.norm(kOfOne) : 0.0;
  const auto relative = [&](std::size_t of) {
    const double distance = total_.size() > 0 ? total_.distance(of, kOfOne) : 0.0;
    return length > 0 ? distance / length : distance > 0 ? INFINITY : 0.0;
  };
  return {step_.step, step_.parameters.size(), equal_.size(), relative(kOfRanks),
          changes_ || figures_.dealt ? floor_ : relative(kPermuted)};
}

bool Comparison::has_gradients() const {
  return total_.size() > 0 && (total_.norm(kOfRanks) > 0 || total_.norm(kOfOne) > 0);
}

double Comparison::allowed(const Products& products) const {
  const double least = least_allowed(products, total_, floor_);
  return changes_ ? least : std::max(least, kMultiple * products.distance(kPermuted, kOfOne));
}

double Comparison::allowed_rest() const {
  return std::max(total_.distance(kPermuted, kOfOne), floor_ / kMultiple * total_.norm(kOfOne));
}

bool Comparison::is_negligible(const Products& products) const {
  return products.norm(kOfOne) <= floor_ * kTiny / kFloor * total_.norm(kOfOne);
}

}  // namespace ddp_doctor
