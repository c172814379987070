// SPDX-License-Identifier: BSD-3-Clause
#include "lib/record/packed.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "lib/error.h"

namespace ddp_doctor {
namespace {

constexpr std::size_t kBits = 16;
constexpr std::size_t kUsageBytes = 10;
constexpr std::size_t kListed = sizeof(int) + sizeof(std::int64_t);

// Fills bytes of a known number, one value after the other.
class Filler {
 public:
  explicit Filler(std::vector<std::uint8_t>& bytes) : at_(bytes.data()) {}
  template <class T>
  void put(const T& value) {
    std::memcpy(at_, &value, sizeof value);
    at_ += sizeof value;
  }

 private:
  std::uint8_t* at_;
};

template <class T>
T get(const std::vector<std::uint8_t>& bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

Root root_of(std::span<const std::uint8_t> bytes) {
  const std::int64_t sizes[] = {static_cast<std::int64_t>(bytes.size())};
  constexpr std::int64_t kStrides[] = {1};
  return digest({bytes.data(), DType::kUInt8, sizes, kStrides}).bits;
}

// Of the list and the first `count` bytes of the row.
Root root_of(const PackedRow& row, std::size_t count) {
  std::vector<std::uint8_t> covered(kListed * row.size());
  Filler filler(covered);
  for (const auto& [tensor, numel] : *row.list) {
    filler.put(tensor);
    filler.put(numel);
  }
  covered.insert(covered.end(), row.bytes.begin(),
                 row.bytes.begin() + static_cast<std::ptrdiff_t>(count));
  return root_of(covered);
}

int id_of(const Observation* seen) { return seen->tensor; }
int id_of(const Sample* seen) { return seen->tensor; }
int id_of(const Usage* seen) { return seen->tensor; }

// Ranks may have seen the same tensors in another order.
template <class T>
void sort_by_tensor(std::vector<const T*>& seen) {
  std::sort(seen.begin(), seen.end(), [](const T* a, const T* b) { return id_of(a) < id_of(b); });
  const auto twice = std::adjacent_find(
      seen.begin(), seen.end(), [](const T* a, const T* b) { return id_of(a) == id_of(b); });
  if (twice == seen.end()) return;
  throw Error("tensor " + std::to_string(id_of(*twice)) +
              " was recorded twice at one stage of a step, the record already has this entry: "
              "write each step, tensor and observation once");
}

// Digests of all, then norms, then maxima, then counts of what is not finite if there is any.
PackedRow pack_digests(Stage stage, const std::vector<const Observation*>& seen) {
  PackedRow row;
  row.slot = {Seen::kDigests, stage};
  TensorList list;
  for (const auto* o : seen) list.push_back({o->tensor, o->digest.numel});
  row.list = std::make_shared<const TensorList>(std::move(list));
  const bool finite =
      std::all_of(seen.begin(), seen.end(), [](const auto* o) { return o->digest.nonfinite == 0; });
  row.bytes.resize((finite ? 32 : 40) * seen.size());
  Filler filler(row.bytes);
  for (const auto* o : seen) filler.put(o->digest.bits);
  row.root = root_of(row, kBits * seen.size());
  for (const auto* o : seen) filler.put(o->digest.l2_norm);
  for (const auto* o : seen) filler.put(o->digest.max_abs);
  for (const auto* o : seen) {
    if (!finite) filler.put(o->digest.nonfinite);
  }
  return row;
}

bool is_single(double value) {
  const auto single = static_cast<double>(static_cast<float>(value));
  return std::memcmp(&single, &value, sizeof value) == 0;
}

// The width of an element (4 where single precision holds all of them, else 8), how many each
// tensor has, then kSamplePositions places for each.
PackedRow pack_samples(Stage stage, const std::vector<const Sample*>& seen) {
  PackedRow row;
  row.slot = {Seen::kSamples, stage};
  TensorList list;
  bool single = true;
  for (const auto* s : seen) {
    list.push_back({s->tensor, 0});
    single = single && std::all_of(s->values.begin(), s->values.end(), is_single);
  }
  row.list = std::make_shared<const TensorList>(std::move(list));
  const std::size_t width = single ? sizeof(float) : sizeof(double);
  row.bytes.resize(1 + seen.size() * (1 + kSamplePositions * width));
  Filler filler(row.bytes);
  filler.put(static_cast<std::uint8_t>(width));
  for (const auto* s : seen) filler.put(static_cast<std::uint8_t>(s->values.size()));
  for (const auto* s : seen) {
    for (std::size_t i = 0; i < kSamplePositions; ++i) {
      const double value = i < s->values.size() ? s->values[i] : 0.0;
      if (single) {
        filler.put(static_cast<float>(value));
      } else {
        filler.put(value);
      }
    }
  }
  row.root = root_of(row, row.bytes.size());
  return row;
}

PackedRow pack_usages(const std::vector<const Usage*>& seen) {
  PackedRow row;
  row.slot = {Seen::kUsages, Stage{}};
  TensorList list;
  row.bytes.resize(kUsageBytes * seen.size());
  Filler filler(row.bytes);
  for (const auto* u : seen) {
    list.push_back({u->tensor, 0});
    filler.put(static_cast<std::uint16_t>(usage::flags_of(*u)));
    filler.put(static_cast<std::int32_t>(u->arrivals));
    filler.put(static_cast<std::int32_t>(u->last_backward));
  }
  row.list = std::make_shared<const TensorList>(std::move(list));
  row.root = root_of(row, row.bytes.size());
  return row;
}

template <class T>
std::array<std::vector<const T*>, kStages> by_stage(const std::vector<T>& seen) {
  std::array<std::vector<const T*>, kStages> stages;
  for (const auto& one : seen) stages[static_cast<std::size_t>(one.stage)].push_back(&one);
  for (auto& stage : stages) sort_by_tensor(stage);
  return stages;
}

}  // namespace

unsigned usage::flags_of(const Usage& u) {
  return (u.used ? kUsed : 0) | (u.reached ? kReachedKnown : 0) |
         (u.reached.value_or(false) ? kReached : 0) | (u.in_output ? kInOutputKnown : 0) |
         (u.in_output.value_or(false) ? kInOutput : 0) | (u.frozen ? kFrozen : 0) |
         (u.replaced ? kReplaced : 0) | (u.in_optimizer ? kInOptimizer : 0) |
         (u.assigned ? kAssigned : 0);
}

Usage usage::from_flags(int tensor, unsigned flags, int arrivals, int last_backward) {
  const auto has = [&](unsigned flag) { return (flags & flag) != 0; };
  Usage u;
  u.tensor = tensor;
  u.used = has(kUsed);
  if (has(kReachedKnown)) u.reached = has(kReached);
  if (has(kInOutputKnown)) u.in_output = has(kInOutput);
  u.frozen = has(kFrozen);
  u.arrivals = arrivals;
  u.last_backward = last_backward;
  u.replaced = has(kReplaced);
  u.in_optimizer = has(kInOptimizer);
  u.assigned = has(kAssigned);
  return u;
}

bool PackedRow::fits() const {
  const std::size_t n = size();
  switch (slot.what) {
    case Seen::kDigests:
      return bytes.size() == 32 * n || bytes.size() == 40 * n;
    case Seen::kSamples:
      return !bytes.empty() && (bytes[0] == sizeof(float) || bytes[0] == sizeof(double)) &&
             bytes.size() == 1 + n * (1 + kSamplePositions * bytes[0]) &&
             std::all_of(bytes.begin() + 1, bytes.begin() + 1 + static_cast<std::ptrdiff_t>(n),
                         [](std::uint8_t count) { return count <= kSamplePositions; });
    case Seen::kUsages:
      return bytes.size() == kUsageBytes * n;
  }
  return false;
}

TensorDigest PackedRow::digest(std::size_t position) const {
  const std::size_t n = size();
  TensorDigest seen;
  std::memcpy(seen.bits.data(), bytes.data() + kBits * position, kBits);
  seen.l2_norm = get<double>(bytes, 16 * n + 8 * position);
  seen.max_abs = get<double>(bytes, 24 * n + 8 * position);
  if (has_nonfinite()) seen.nonfinite = get<std::int64_t>(bytes, 32 * n + 8 * position);
  seen.numel = (*list)[position].numel;
  return seen;
}

SampledValues PackedRow::sample(std::size_t position) const {
  const std::size_t width = bytes[0];
  const std::size_t begin = 1 + size() + position * kSamplePositions * width;
  SampledValues values;
  for (std::size_t i = 0; i < bytes[1 + position]; ++i) {
    values.push_back(width == sizeof(float) ? static_cast<double>(get<float>(bytes, begin + 4 * i))
                                            : get<double>(bytes, begin + 8 * i));
  }
  return values;
}

Usage PackedRow::usage(std::size_t position) const {
  const std::size_t at = kUsageBytes * position;
  return usage::from_flags((*list)[position].tensor, get<std::uint16_t>(bytes, at),
                           get<std::int32_t>(bytes, at + 2), get<std::int32_t>(bytes, at + 6));
}

std::vector<PackedRow> pack(const StepRecord& step) {
  std::vector<PackedRow> rows;
  const auto digests = by_stage(step.observations);
  const auto samples = by_stage(step.samples);
  for (std::size_t stage = 0; stage < kStages; ++stage) {
    if (!digests[stage].empty())
      rows.push_back(pack_digests(static_cast<Stage>(stage), digests[stage]));
    if (!samples[stage].empty())
      rows.push_back(pack_samples(static_cast<Stage>(stage), samples[stage]));
  }
  std::vector<const Usage*> usages;
  for (const auto& usage : step.usages) usages.push_back(&usage);
  sort_by_tensor(usages);
  if (!usages.empty()) rows.push_back(pack_usages(usages));
  return rows;
}

void unpack(const PackedRow& row, StepRecord& step) {
  for (std::size_t i = 0; i < row.size(); ++i) {
    const int tensor = (*row.list)[i].tensor;
    switch (row.slot.what) {
      case Seen::kDigests:
        step.observations.push_back({tensor, row.slot.stage, row.digest(i)});
        break;
      case Seen::kSamples:
        step.samples.push_back({tensor, row.slot.stage, row.sample(i)});
        break;
      case Seen::kUsages:
        step.usages.push_back(row.usage(i));
        break;
    }
  }
}

}  // namespace ddp_doctor
