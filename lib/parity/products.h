// SPDX-License-Identifier: BSD-3-Clause
// Gradients by their inner products: lengths, distances, and how one follows from others.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace ddp_doctor {

// Of n vectors with each other.
class Products {
 public:
  Products() = default;
  // The upper triangle, row by row: n (n + 1) / 2 numbers.
  Products(std::size_t n, std::span<const double> triangle);

  std::size_t size() const { return n_; }
  double at(std::size_t i, std::size_t j) const { return values_[i * n_ + j]; }
  double norm(std::size_t i) const;
  // Of vector i to `k` times vector j.
  double distance(std::size_t i, std::size_t j, double k = 1.0) const;
  // The k that makes this distance smallest; 0 if vector j is zero.
  double scale(std::size_t i, std::size_t j) const;

  // As if the vectors of both were one long one.
  Products& operator+=(const Products& other);

 private:
  std::size_t n_ = 0;
  std::vector<double> values_;
};

// Vector `target` as a weighted sum of `count` vectors from `first` on, by least squares. Vectors
// that follow from each other have no weights: all are 0, and the rest is the length of `target`.
struct Mixture {
  std::vector<double> weights;
  double rest = 0.0;  // the distance that remains
};
Mixture mixture_of(const Products& products, std::size_t target, std::size_t first,
                   std::size_t count);

// Of vector `target` to such a sum.
double distance_to_mixture(const Products& products, std::size_t target, std::size_t first,
                           const std::vector<double>& weights);

}  // namespace ddp_doctor
