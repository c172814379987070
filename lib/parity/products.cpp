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

double distance_to_mixture(const Products& products, std::size_t target, std::size_t first,
                           const std::vector<double>& weights) {
  double square = products.at(target, target);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    square -= 2 * weights[i] * products.at(first + i, target);
    for (std::size_t j = 0; j < weights.size(); ++j)
      square += weights[i] * weights[j] * products.at(first + i, first + j);
  }
  return std::sqrt(std::max(0.0, square));
}

Mixture mixture_of(const Products& products, std::size_t target, std::size_t first,
                   std::size_t count) {
  Mixture mixture{std::vector<double>(count, 0.0), products.norm(target)};
  std::vector<std::size_t> used;  // a vector of zeros has no weight
  for (std::size_t i = first; i < first + count; ++i) {
    if (products.at(i, i) > 0) used.push_back(i);
  }
  // The normal equations, by Gaussian elimination with pivots.
  const std::size_t size = used.size();
  std::vector<std::vector<double>> rows(size, std::vector<double>(size + 1));
  for (std::size_t i = 0; i < size; ++i) {
    for (std::size_t j = 0; j < size; ++j) rows[i][j] = products.at(used[i], used[j]);
    rows[i][size] = products.at(used[i], target);
  }
  for (std::size_t column = 0; column < size; ++column) {
    const auto pivot = std::max_element(
        rows.begin() + static_cast<std::ptrdiff_t>(column), rows.end(),
        [&](const auto& a, const auto& b) { return std::abs(a[column]) < std::abs(b[column]); });
    if (!(std::abs((*pivot)[column]) > 1e-14 * products.at(used[column], used[column])))
      return mixture;  // one of them follows from the others
    std::swap(*pivot, rows[column]);
    for (std::size_t i = 0; i < size; ++i) {
      if (i == column) continue;
      const double factor = rows[i][column] / rows[column][column];
      for (std::size_t j = column; j <= size; ++j) rows[i][j] -= factor * rows[column][j];
    }
  }
  for (std::size_t i = 0; i < size; ++i)
    mixture.weights[used[i] - first] = rows[i][size] / rows[i][i];
  mixture.rest = distance_to_mixture(products, target, first, mixture.weights);
  return mixture;
}

}  // namespace ddp_doctor
