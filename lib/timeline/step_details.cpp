#include "lib/timeline/step_details.h"

#include <algorithm>
#include <bit>
#include <tuple>

namespace ddp_doctor {
namespace {

bool same_bits(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

auto all_of(const Usage& usage) {
  return std::tie(usage.tensor, usage.used, usage.reached, usage.in_output, usage.frozen,
                  usage.arrivals, usage.last_backward, usage.replaced, usage.in_optimizer,
                  usage.assigned);
}

bool exact_in_single(double value) {
  return same_bits(value, static_cast<double>(static_cast<float>(value)));
}

}  // namespace

void StepDetails::add(int rank, const StepRecord& seen, const std::vector<int>& ids) {
  const auto id_of = [&](int own) {
    return own >= 0 && static_cast<std::size_t>(own) < ids.size()
               ? ids[static_cast<std::size_t>(own)]
               : -1;
  };
  latest_.digests.resize(tensors_, {});
  latest_.samples.resize(tensors_, {});
  latest_.usages.resize(tensors_, 0);
  for (const auto& [own, stage, digest] : seen.observations) {
    const int tensor = id_of(own);
    if (tensor < 0) continue;
    place(digests_at_[static_cast<std::size_t>(stage)], rank, tensor) =
        known_or_added(digest, latest_.digests[static_cast<std::size_t>(tensor)], stage);
  }
  for (const auto& [own, stage, values] : seen.samples) {
    const int tensor = id_of(own);
    if (tensor < 0) continue;
    place(samples_at_[static_cast<std::size_t>(stage)], rank, tensor) =
        known_or_added(values, latest_.samples[static_cast<std::size_t>(tensor)], stage);
  }
  for (Usage usage : seen.usages) {
    usage.tensor = id_of(usage.tensor);
    if (usage.tensor < 0) continue;
    Number& latest = latest_.usages[static_cast<std::size_t>(usage.tensor)];
    if (latest == 0 || all_of(usages_[latest - 1]) != all_of(usage)) {
      usages_.push_back(usage);
      latest = static_cast<Number>(usages_.size());
    }
    place(usages_at_, rank, usage.tensor) = latest;
  }
}

void StepDetails::complete() {
  latest_ = {};
  digests_.shrink_to_fit();
  values_.shrink_to_fit();
  singles_.shrink_to_fit();
  doubles_.shrink_to_fit();
  usages_.shrink_to_fit();
}

template <class Observed>
StepDetails::Number StepDetails::known_or_added(const Observed& observed,
                                                std::array<Number, kStages>& latest, Stage stage) {
  const auto known = std::find_if(latest.begin(), latest.end(), [&](Number number) {
    return number != 0 && equal(number, observed);
  });
  const Number number = known != latest.end() ? *known : add(observed);
  latest[static_cast<std::size_t>(stage)] = number;
  return number;
}

StepDetails::Number& StepDetails::place(Places& places, int rank, int tensor) {
  if (places.empty()) places.resize(ranks_ * tensors_, 0);
  return places[static_cast<std::size_t>(rank) * tensors_ + static_cast<std::size_t>(tensor)];
}

StepDetails::Number StepDetails::at(const Places& places, int rank, int tensor) const {
  if (places.empty()) return 0;
  return places[static_cast<std::size_t>(rank) * tensors_ + static_cast<std::size_t>(tensor)];
}

StepDetails::Number StepDetails::add(const TensorDigest& digest) {
  digests_.push_back(digest);
  return static_cast<Number>(digests_.size());
}

StepDetails::Number StepDetails::add(const std::vector<double>& values) {
  const bool single = std::all_of(values.begin(), values.end(), exact_in_single);
  values_.push_back({static_cast<std::uint32_t>(single ? singles_.size() : doubles_.size()),
                     static_cast<std::uint16_t>(values.size()), single});
  for (const double value : values) {
    if (single) {
      singles_.push_back(static_cast<float>(value));
    } else {
      doubles_.push_back(value);
    }
  }
  return static_cast<Number>(values_.size());
}

bool StepDetails::equal(Number number, const TensorDigest& digest) const {
  const TensorDigest& other = digests_[number - 1];
  return other.bits == digest.bits && same_bits(other.l2_norm, digest.l2_norm) &&
         same_bits(other.max_abs, digest.max_abs) && other.nonfinite == digest.nonfinite &&
         other.numel == digest.numel;
}

bool StepDetails::equal(Number number, const std::vector<double>& values) const {
  const Values& other = values_[number - 1];
  const auto equals = [&](const auto& pool) {
    const auto begin = pool.begin() + other.begin;
    return std::equal(values.begin(), values.end(), begin, begin + other.count, same_bits);
  };
  return other.single ? equals(singles_) : equals(doubles_);
}

std::vector<double> StepDetails::values_of(Number number) const {
  const Values& values = values_[number - 1];
  const auto copy = [&](const auto& pool) {
    const auto begin = pool.begin() + values.begin;
    return std::vector<double>(begin, begin + values.count);
  };
  return values.single ? copy(singles_) : copy(doubles_);
}

const TensorDigest* StepDetails::digest(int rank, int tensor, Stage stage) const {
  const Number number = at(digests_at_[static_cast<std::size_t>(stage)], rank, tensor);
  return number == 0 ? nullptr : &digests_[number - 1];
}

std::optional<Sample> StepDetails::sample(int rank, int tensor, Stage stage) const {
  const Number number = at(samples_at_[static_cast<std::size_t>(stage)], rank, tensor);
  if (number == 0) return {};
  return Sample{tensor, stage, values_of(number)};
}

const Usage* StepDetails::usage(int rank, int tensor) const {
  const Number number = at(usages_at_, rank, tensor);
  return number == 0 ? nullptr : &usages_[number - 1];
}

}  // namespace ddp_doctor
