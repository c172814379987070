// SPDX-License-Identifier: BSD-3-Clause
#include "probes/torchscript/inputs.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <regex>
#include <utility>

#include "lib/error.h"

namespace ddp_doctor {
namespace {

constexpr std::pair<const char*, at::ScalarType> kDTypes[] = {
    {"float32", at::kFloat},     {"float64", at::kDouble}, {"float16", at::kHalf},
    {"bfloat16", at::kBFloat16}, {"int64", at::kLong},     {"int32", at::kInt},
    {"int16", at::kShort},       {"int8", at::kChar},      {"uint8", at::kByte},
    {"bool", at::kBool},
};

std::string dtype_names() {
  std::string names;
  for (const auto& [name, dtype] : kDTypes)
    names += (names.empty() ? "" : ", ") + std::string(name);
  return names;
}

std::int64_t number(const std::string& digits, const std::string& text) {
  std::int64_t value = 0;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (failure != std::errc() || end != digits.data() + digits.size())
    throw Error(fmt::format("--input {}: {} is too large", text, digits));
  return value;
}

}  // namespace

InputSpec parse_input(const std::string& text) {
  static const std::regex pattern(R"(([a-z0-9]+)\[([0-9]+(?:,[0-9]+)*)?\](?::([0-9]+))?)");
  std::smatch match;
  if (!std::regex_match(text, match, pattern)) {
    throw Error(fmt::format(
        "--input {}: not of the form DTYPE[SIZE,SIZE,...]; write for example --input float32[8,32]",
        text));
  }
  InputSpec spec;
  spec.text = text;
  const auto* known = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                   [&](const auto& entry) { return match[1] == entry.first; });
  if (known == std::end(kDTypes))
    throw Error(fmt::format("--input {}: {} is not a dtype; choose one of {}", text, match[1].str(),
                            dtype_names()));
  spec.dtype = known->second;
  static const std::regex comma(",");
  const std::string sizes = match[2];
  for (std::sregex_token_iterator size(sizes.begin(), sizes.end(), comma, -1), end; size != end;
       ++size) {
    if (size->length() > 0) spec.sizes.push_back(number(*size, text));
  }
  if (match[3].matched) spec.bound = std::max<std::int64_t>(1, number(match[3], text));
  return spec;
}

at::Tensor make_input(const InputSpec& spec, std::int64_t seed, int rank, std::int64_t micro_batch,
                      std::size_t position) {
  // Any odd constants work: they only separate neighbouring seeds.
  const auto mixed = static_cast<std::uint64_t>(seed) * 0x9E3779B97F4A7C15ull +
                     static_cast<std::uint64_t>(rank) * 0xBF58476D1CE4E5B9ull +
                     static_cast<std::uint64_t>(micro_batch) * 0x94D049BB133111EBull + position;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(mixed);
  if (spec.dtype == at::kBool)
    return at::randint(0, 2, spec.sizes, generator, at::TensorOptions().dtype(at::kLong))
        .to(at::kBool);
  if (!at::isFloatingType(spec.dtype)) {
    return at::randint(0, spec.bound, spec.sizes, generator, at::TensorOptions().dtype(at::kLong))
        .to(spec.dtype);
  }
  return at::randn(spec.sizes, generator, at::TensorOptions().dtype(at::kFloat)).to(spec.dtype);
}

}  // namespace ddp_doctor
