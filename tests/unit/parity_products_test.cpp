// SPDX-License-Identifier: BSD-3-Clause

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/planted_gradients.h"

namespace ddp_doctor {
namespace {

using testing::DoubleNear;
using testing::Each;
using testing::ElementsAre;

TEST(Products, HaveLengthsDistancesAndScales) {
  const Products products = products_of({{6, 8}, {3, 4}, {4, -3}, {0, 0}});
  EXPECT_DOUBLE_EQ(products.norm(0), 10);
  EXPECT_DOUBLE_EQ(products.distance(0, 1), 5);
  EXPECT_DOUBLE_EQ(products.distance(0, 1, 2.0), 0);
  EXPECT_DOUBLE_EQ(products.scale(0, 1), 2);
  EXPECT_DOUBLE_EQ(products.scale(1, 0), 0.5);
  EXPECT_DOUBLE_EQ(products.scale(1, 2), 0);  // at a right angle
  EXPECT_DOUBLE_EQ(products.scale(0, 3), 0);  // of nothing
  EXPECT_DOUBLE_EQ(products.at(2, 0), products.at(0, 2));
}

TEST(Products, AddUpAsIfTheVectorsWereOneLongOne) {
  Products all;
  all += products_of({{1, 2}, {3, 4}});
  all += products_of({{5}, {6}});
  const Products whole = products_of({{1, 2, 5}, {3, 4, 6}});
  for (std::size_t i = 0; i < 2; ++i) {
    for (std::size_t j = 0; j < 2; ++j) EXPECT_DOUBLE_EQ(all.at(i, j), whole.at(i, j));
  }
}

TEST(Mixture, FindsTheWeightsAndWhatTheyLeave) {
  const Vector a = {1, 2, 0}, b = {0, 1, -1};
  const auto fits = mixture_of(products_of({sum_of({a, b}, {0.25, -3}), a, b}), 0, 1, 2);
  EXPECT_THAT(fits.weights, ElementsAre(DoubleNear(0.25, 1e-12), DoubleNear(-3, 1e-12)));
  EXPECT_NEAR(fits.rest, 0, 1e-6);
  const Vector apart = {2, -1, -1};  // at a right angle to both
  const auto rest = mixture_of(products_of({sum_of({a, b, apart}, {1, 1, 0.5}), a, b}), 0, 1, 2);
  EXPECT_THAT(rest.weights, ElementsAre(DoubleNear(1, 1e-12), DoubleNear(1, 1e-12)));
  EXPECT_NEAR(rest.rest, 0.5 * std::sqrt(6.0), 1e-12);
}

TEST(Mixture, NeedsARowExchange) {
  // After the first column, the pivot of the second one is in the last row.
  const std::vector<Vector> basis = {{1, 0, 0}, {1, 1e-6, 0}, {0, 1, 2}};
  const Vector weights = {2, 3, 4};
  const auto found =
      mixture_of(products_of({sum_of(basis, weights), basis[0], basis[1], basis[2]}), 0, 1, 3);
  EXPECT_THAT(found.weights,
              ElementsAre(DoubleNear(2, 1e-3), DoubleNear(3, 1e-3), DoubleNear(4, 1e-3)));
}

TEST(Mixture, OfDependentVectorsHasNoWeights) {
  const auto found = mixture_of(products_of({{3, 0}, {1, 2}, {2, 4}}), 0, 1, 2);
  EXPECT_THAT(found.weights, Each(0.0));
  EXPECT_DOUBLE_EQ(found.rest, 3);
}

TEST(Mixture, LeavesOutAVectorOfZeros) {
  const auto found = mixture_of(products_of({{2, 6}, {1, 3}, {0, 0}}), 0, 1, 2);
  EXPECT_THAT(found.weights, ElementsAre(DoubleNear(2, 1e-12), 0.0));
  EXPECT_NEAR(found.rest, 0, 1e-6);
}

}  // namespace
}  // namespace ddp_doctor
