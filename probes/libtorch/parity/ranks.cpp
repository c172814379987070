// SPDX-License-Identifier: BSD-3-Clause
#include "probes/libtorch/parity/ranks.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <fstream>
#include <utility>

namespace ddp_doctor {
namespace {

constexpr int kFurtherSteps = 2;
constexpr std::int64_t kLookedAt = 200;  // steps in which these are looked for

}  // namespace

RanksOfParity::RanksOfParity(RanksSettings settings) : settings_(std::move(settings)) {
  std::filesystem::create_directories(
      impossible_file(settings_.folder, settings_.rank).parent_path());
}

Samples RanksOfParity::batch(const Samples& given, const std::vector<NamedTensor>& tensors) {
  if (over_) return given;
  kept_.micro_batches.push_back(map_tensors(given, copy_of));
  if (kept_.micro_batches.size() == 1 && settings_.rank == 0) {
    kept_.names.clear(), kept_.tensors.clear();
    for (const auto& named : tensors) {
      kept_.names.push_back(named.name);
      kept_.tensors.push_back(copy_of(named.tensor));
    }
  }
  forward_begins();
  return given;
}

// The first steps, and a few whose batches have other shapes than those of the first one. Which
// ones these are may differ by rank: the reference takes those that all have. It repeats only steps
// of as many micro-batches as the first one, so not that at the end of an epoch.
bool RanksOfParity::wanted() {
  std::string shapes;
  for (const auto& samples : kept_.micro_batches) shapes += shapes_of(samples) + "; ";
  if (step_ == 1) {
    first_shapes_ = shapes;
    micro_batches_ = kept_.micro_batches.size();
  }
  if (kept_.micro_batches.size() != micro_batches_) return false;
  if (first_++ < settings_.steps) return true;
  return shapes != first_shapes_ && further_++ < kFurtherSteps;
}

void RanksOfParity::gradients_ready(int optimizer, const std::vector<NamedTensor>& parameters) {
  if (over_) return;
  if (optimizer > 0)
    return failed(
        "it has several optimizers, and parity of a C++ program compares the steps of one");
  if (kept_.micro_batches.empty())
    return failed(step_ == 1 ? settings_.how_to_give
                             : "an optimizer uses the gradients of a batch more than once");
  if (wanted()) {
    kept_.losses = losses_;
    kept_.drew_random = drew_random_;
    if (settings_.rank == 0) {
      for (const auto& [name, tensor, is_buffer] : parameters) {
        kept_.parameters.push_back(name);
        kept_.gradients.push_back(gradient_of(tensor));
      }
    }
    const auto bytes = to_bytes(kept_);
    if (written_ + static_cast<std::int64_t>(bytes.size()) > settings_.budget) {
      if (written_ == 0)
        return failed(fmt::format(
            "the batches, gradients and weights of one step take {} MiB; allow more with --budget",
            (bytes.size() + (1 << 20) - 1) >> 20));
      over_ = true;
      return;
    }
    written_ += static_cast<std::int64_t>(bytes.size());
    write_bytes(kept_step_file(settings_.folder, settings_.rank, step_), bytes);
  }
  kept_ = {};
  losses_.clear();
  over_ = ++step_ > settings_.steps + kLookedAt;
}

void RanksOfParity::failed(const std::string& reason) {
  over_ = true;
  std::ofstream(impossible_file(settings_.folder, settings_.rank)) << reason;
}

}  // namespace ddp_doctor
