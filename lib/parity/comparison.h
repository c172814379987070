// SPDX-License-Identifier: BSD-3-Clause
// The gradients of one step beside those of one process: which of them differ beyond rounding.
#pragma once

#include <vector>

#include "lib/parity/judge.h"

namespace ddp_doctor {

// A difference counts beyond so many times what the order of the samples does to a gradient.
inline constexpr double kMultiple = 20.0;

inline constexpr std::size_t kNamed = 6;  // parameters in a sentence

class Comparison {
 public:
  struct Different {
    const ParityParameter* parameter;
    double k;
    double rest;  // relative to one process' gradient
    bool clean;   // nothing but k explains the difference
  };

  // `changes`: as one process the program computes something else in later steps (doubts.h), and
  // the other order of the samples, which is computed in one of them, tells no rounding.
  Comparison(const ParityStep& step, const ParityFigures& figures, bool changes);

  const ParityStep& step() const { return step_; }
  const ParityFigures& figures() const { return figures_; }
  bool changes() const { return changes_; }
  const Products& total() const { return total_; }  // of all parameters, as one vector
  const std::vector<const ParityParameter*>& equal() const { return equal_; }
  const std::vector<Different>& different() const { return different_; }

  ComparedStep compared() const;
  bool has_gradients() const;
  // The distance that rounding may make.
  double allowed(const Products& products) const;
  // What it may leave of a fit to all gradients together.
  double allowed_rest() const;
  // So small beside all of them that it is zero but for rounding.
  bool is_negligible(const Products& products) const;

 private:
  const ParityStep& step_;
  const ParityFigures& figures_;
  const bool changes_;
  const double floor_;
  const Products total_;
  std::vector<const ParityParameter*> equal_;
  std::vector<Different> different_;
};

// What rounding may do to a gradient in any case, relative to it.
double floor_of(const ParityFigures& figures);

// The same, as a distance, for one of gradients that are `total` together.
double least_allowed(const Products& products, const Products& total, double floor);

Products total_of(const ParityStep& step);

}  // namespace ddp_doctor
