// SPDX-License-Identifier: BSD-3-Clause
// The samples of micro-batches: those of several ranks as one batch, and in another order.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace ddp_doctor {

// What a program takes in one micro-batch: tensors whose first dimension counts the samples, and
// anything else that is the same for all of them.
using Samples = std::vector<c10::IValue>;

// Why nothing can be compared with one process.
struct Impossible : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The size of the first dimension of the first tensor that has one; 0: there is none.
std::int64_t count_samples(const Samples& samples);

// One batch of all ranks' samples, rank by rank. Throws Impossible if they have other shapes, or
// values that are neither tensors nor the same on all ranks.
Samples join(const std::vector<Samples>& ranks);

// What the program gave by itself, with `samples` in the place of its own: what is no tensor, or no
// tensor of samples, stays.
Samples put_into(const Samples& own, const Samples& samples);

// The last sample first.
Samples reversed(const Samples& samples);

// The same with each tensor as `change` returns it; also those in tuples, lists and dictionaries.
Samples map_tensors(const Samples& samples,
                    const std::function<at::Tensor(const at::Tensor&)>& change);

// What a loss may weigh by: "samples", and for integers and masks "batch[1] that are not -100".
std::map<std::string, double> counts_of(const Samples& samples);

// The shapes of all tensors, in words.
std::string shapes_of(const Samples& samples);

}  // namespace ddp_doctor
