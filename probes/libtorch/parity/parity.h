// SPDX-License-Identifier: BSD-3-Clause
// `ddp-doctor parity` of a C++ or TorchScript program: the ranks keep what they train on, and one
// process, the reference, is fed that in the place of its own batches.
//
// The tool starts both, with a role in the environment: DDP_DOCTOR_PARITY=ranks or reference, and
// DDP_DOCTOR_PARITY_FOLDER for what passes between them. probes/python/ddp_doctor_parity does the
// same for programs in Python; figures.json, which ends the reference, has one format.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "probes/libtorch/ddp/module_state.h"
#include "probes/libtorch/parity/samples.h"

namespace ddp_doctor {

class Parity {
 public:
  // Null without a role. `how_to_give`: what the author does so that batches are seen.
  static std::unique_ptr<Parity> from_environment(int rank, int world_size,
                                                  const std::string& how_to_give);
  virtual ~Parity() = default;

  // Before a micro-batch' forward, with everything that is trained. Returns the samples that the
  // program shall take.
  virtual Samples batch(const Samples& given, const std::vector<NamedTensor>& tensors) = 0;
  // After its forward.
  void loss(double value);
  // An optimizer, by its number, is about to use the gradients of these.
  virtual void gradients_ready(int optimizer, const std::vector<NamedTensor>& parameters) = 0;
  virtual void failed(const std::string& reason) = 0;

 protected:
  void forward_begins();

  std::vector<double> losses_;  // of the step under way
  bool drew_random_ = false;    // numbers, in a forward

 private:
  at::Tensor random_state_;  // when the forward under way began
};

}  // namespace ddp_doctor
