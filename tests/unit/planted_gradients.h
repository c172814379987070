// SPDX-License-Identifier: BSD-3-Clause
// Gradients of ranks and of one process as small vectors, of which the judge gets the inner
// products, as the reference writes them.
#pragma once

#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "lib/parity/judge.h"

namespace ddp_doctor {

using Vector = std::vector<double>;

inline double dot(const Vector& a, const Vector& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

inline Vector sum_of(const std::vector<Vector>& vectors, const Vector& weights) {
  Vector sum(vectors.front().size(), 0.0);
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    for (std::size_t j = 0; j < sum.size(); ++j) sum[j] += weights[i] * vectors[i][j];
  }
  return sum;
}

inline Vector times(double k, const Vector& vector) { return sum_of({vector}, {k}); }

inline std::vector<double> triangle_of(const std::vector<Vector>& vectors) {
  std::vector<double> triangle;
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    for (std::size_t j = i; j < vectors.size(); ++j)
      triangle.push_back(dot(vectors[i], vectors[j]));
  }
  return triangle;
}

inline Products products_of(const std::vector<Vector>& vectors) {
  return {vectors.size(), triangle_of(vectors)};
}

inline constexpr double kRounding = 1e-7;

// A step in which one process takes the mean of what the ranks' samples give, and so do the ranks.
struct Planted {
  explicit Planted(std::size_t count, std::size_t parameters = 3) : alone(parameters) {
    for (std::size_t p = 0; p < parameters; ++p) {
      names.push_back("layer" + std::to_string(p));
      for (std::size_t i = 0; i < count; ++i) alone[p].push_back(random());
    }
    for (std::size_t i = 0; i < count; ++i) of.push_back(static_cast<int>(i));
    weigh(Vector(count, 1.0 / static_cast<double>(count)),
          Vector(count, 1.0 / static_cast<double>(count)));
  }

  Vector random() {
    std::normal_distribution<double> normal;
    Vector vector(30);
    for (auto& value : vector) value = normal(generator);
    return vector;
  }

  // What each of these contributes to the gradient of the ranks, and to that of one process.
  void weigh(const Vector& by_ranks, const Vector& by_one) {
    ranks.clear(), one.clear();
    for (const auto& vectors : alone) {
      ranks.push_back(sum_of(vectors, by_ranks));
      one.push_back(sum_of(vectors, by_one));
    }
  }

  Vector rounded(const Vector& vector, double size) {
    return sum_of({vector, random()}, {1, size * std::sqrt(dot(vector, vector) / 30)});
  }

  ParityStep step(std::int64_t number = 1) {
    ParityStep step;
    step.step = number;
    step.alone = of;
    step.rank_losses = {1.0, 2.0};
    step.loss = 1.5;
    std::size_t next = kAlone + of.size();
    if (!padded.empty()) step.padded = {kAlone, next++};
    if (!again.empty()) step.again = next++;
    for (std::size_t p = 0; p < names.size(); ++p) {
      std::vector<Vector> vectors = {rounded(ranks[p], kRounding), one[p], rounded(one[p], order)};
      for (const auto& vector : alone[p]) vectors.push_back(rounded(vector, kRounding));
      if (!padded.empty()) vectors.push_back(padded[p]);
      if (!again.empty()) vectors.push_back(again[p]);
      step.parameters.push_back({names[p], products_of(vectors)});
    }
    return step;
  }

  std::mt19937 generator{7};
  std::vector<std::string> names;
  std::vector<std::vector<Vector>> alone;         // by parameter
  std::vector<int> of;                            // whose each of them is
  std::vector<Vector> ranks, one, padded, again;  // by parameter
  double order = kRounding;                       // what the order of the samples changes
};

inline Parity judged(ParityStep step, int world_size = 2,
                     const std::function<void(ParityFigures&)>& change = {}) {
  ParityFigures figures;
  figures.steps.push_back(std::move(step));
  if (change) change(figures);
  return judge_parity(figures, world_size);
}

// The one finding of a conclusive comparison.
inline Finding finding_of_parity(const Parity& parity) {
  EXPECT_EQ(parity.inconclusive, "");
  EXPECT_THAT(parity.findings, testing::SizeIs(1));
  return parity.findings.empty() ? Finding() : parity.findings.front();
}

}  // namespace ddp_doctor
