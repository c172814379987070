// SPDX-License-Identifier: BSD-3-Clause
#include "probes/libtorch/parity/parity.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

#include <cstdlib>
#include <string_view>

#include "probes/libtorch/parity/ranks.h"
#include "probes/libtorch/parity/reference.h"

namespace ddp_doctor {
namespace {

at::Tensor random_state() {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

std::int64_t setting(const char* name, std::int64_t otherwise) {
  const char* text = std::getenv(name);
  const std::int64_t number = text == nullptr ? 0 : std::atoll(text);
  return number > 0 ? number : otherwise;
}

}  // namespace

std::unique_ptr<Parity> Parity::from_environment(int rank, int world_size,
                                                 const std::string& how_to_give) {
  const char* role = std::getenv("DDP_DOCTOR_PARITY");
  const char* folder = std::getenv("DDP_DOCTOR_PARITY_FOLDER");
  if (role == nullptr || folder == nullptr) return nullptr;
  if (std::string_view(role) == "ranks") {
    const RanksSettings settings = {folder, rank, setting("DDP_DOCTOR_PARITY_STEPS", 3),
                                    setting("DDP_DOCTOR_PARITY_BUDGET", std::int64_t{4} << 30),
                                    how_to_give};
    return std::make_unique<RanksOfParity>(settings);
  }
  if (world_size > 1) return nullptr;
  return std::make_unique<ReferenceOfParity>(folder, how_to_give);
}

void Parity::forward_begins() { random_state_ = random_state(); }

void Parity::loss(double value) {
  losses_.push_back(value);
  if (random_state_.defined() && !random_state_.equal(random_state())) drew_random_ = true;
  random_state_ = at::Tensor();
}

}  // namespace ddp_doctor
