// SPDX-License-Identifier: BSD-3-Clause
#include "lib/parity/products.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace ddp_doctor {

Products::Products(std::size_t n, std::span<const double> triangle) : n_(n), values_(n * n) {
  std::size_t next = 0;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = i; j < n; ++j)
      values_[i * n + j] = values_[j * n + i] = next < triangle.size() ? triangle[next++] : 0.0;
  }
}

double Products::norm(std::size_t i) const { return std::sqrt(std::max(0.0, at(i, i))); }

double Products::distance(std::size_t i, std::size_t j, double k) const {
  return std::sqrt(std::max(0.0, at(i, i) - 2 * k * at(i, j) + k * k * at(j, j)));
}

double Products::scale(std::size_t i, std::size_t j) const {
  return at(j, j) > 0 ? at(i, j) / at(j, j) : 0.0;
}

Products& Products::operator+=(const Products& other) {
  if (n_ == 0) return *this = other;
  for (std::size_t i = 0; i < values_.size() && i < other.values_.size(); ++i)
    values_[i] += other.values_[i];
  return *this;
}

Mixture mixture_of(const Products& products, std::size_t target, std::size_t first,
                   std::size_t count) {
  // The normal equations, by Gaussian elimination with pivots.
  std::vector<std::vector<double>> rows(count, std::vector<double>(count + 1));
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = 0; j < count; ++j) rows[i][j] = products.at(first + i, first + j);
    rows[i][count] = products.at(first + i, target);
  }
  Mixture mixture{std::vector<double>(count, 0.0), products.norm(target)};
  for (std::size_t column = 0; column < count; ++column) {
    const auto pivot = std::max_element(
        rows.begin() + static_cast<std::ptrdiff_t>(column), rows.end(),
        [&](const auto& a, const auto& b) { return std::abs(a[column]) < std::abs(b[column]); });
    if (!(std::abs((*pivot)[column]) > 1e-14 * products.at(first + column, first + column)))
      return mixture;  // one of them follows from the others
    std::swap(*pivot, rows[column]);
    for (std::size_t i = 0; i < count; ++i) {
      if (i == column) continue;
      const double factor = rows[i][column] / rows[column][column];
      for (std::size_t j = column; j <= count; ++j) rows[i][j] -= factor * rows[column][j];
    }
  }
  for (std::size_t i = 0; i < count; ++i) mixture.weights[i] = rows[i][count] / rows[i][i];
  double square = products.at(target, target);
  for (std::size_t i = 0; i < count; ++i) {
    square -= 2 * mixture.weights[i] * products.at(first + i, target);
    for (std::size_t j = 0; j < count; ++j)
      square += mixture.weights[i] * mixture.weights[j] * products.at(first + i, first + j);
  }
  mixture.rest = std::sqrt(std::max(0.0, square));
  return mixture;
}

}  // namespace ddp_doctor
