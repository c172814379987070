// SPDX-License-Identifier: BSD-3-Clause
#include "probes/libtorch/parity/kept_step.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <fstream>

#include "lib/error.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;

using Values = std::vector<c10::IValue>;

// Tuples only: the type of a list is written beside it, and is not read again without a compiler.
template <class Range, class Make>
c10::IValue tuple_of(const Range& range, const Make& make) {
  Values values;
  for (const auto& each : range) values.push_back(make(each));
  return c10::ivalue::Tuple::create(std::move(values));
}

Values elements_of(const c10::IValue& tuple) {
  const auto& elements = tuple.toTupleRef().elements();
  return Values(elements.begin(), elements.end());
}

template <class Read>
auto list_of(const c10::IValue& tuple, const Read& read) {
  std::vector<decltype(read(tuple))> list;
  for (const auto& element : elements_of(tuple)) list.push_back(read(element));
  return list;
}

template <class T>
c10::IValue plain(const std::vector<T>& values) {
  return tuple_of(values, [](const T& value) { return c10::IValue(value); });
}

c10::IValue of_gradients(const Gradients& gradients) {
  return tuple_of(gradients,
                  [](const auto& each) { return each ? c10::IValue(*each) : c10::IValue(); });
}

std::string to_string(const c10::IValue& value) { return value.toStringRef(); }
double to_double(const c10::IValue& value) { return value.toDouble(); }
at::Tensor to_tensor(const c10::IValue& value) { return value.toTensor(); }

std::optional<at::Tensor> to_gradient(const c10::IValue& value) {
  return value.isNone() ? std::nullopt : std::optional(value.toTensor());
}

Values read(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
  return elements_of(torch::pickle_load(bytes));
}

}  // namespace

at::Tensor copy_of(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.layout() == at::kStrided ? tensor : tensor.to_dense();
  return dense.detach().to(at::kCPU).clone(at::MemoryFormat::Contiguous);
}

std::optional<at::Tensor> gradient_of(const at::Tensor& parameter) {
  const at::Tensor gradient = parameter.grad();
  return gradient.defined() ? std::optional(copy_of(gradient)) : std::nullopt;
}

fs::path kept_step_file(const fs::path& folder, int rank, std::int64_t step) {
  return folder / fmt::format("rank-{:05}", rank) / fmt::format("step-{:05}.pt", step);
}

fs::path impossible_file(const fs::path& folder, int rank) {
  return folder / fmt::format("rank-{:05}", rank) / "impossible";
}

std::vector<char> to_bytes(const KeptStep& step) {
  return torch::pickle_save(c10::ivalue::Tuple::create(
      Values{tuple_of(step.micro_batches, [](const Samples& samples) { return plain(samples); }),
             plain(step.losses), step.drew_random, plain(step.names), plain(step.parameters),
             plain(step.tensors), of_gradients(step.gradients)}));
}

KeptStep read_kept_step(const fs::path& file) {
  const auto fields = read(file);
  return {list_of(fields.at(0), elements_of),
          list_of(fields.at(1), to_double),
          fields.at(2).toBool(),
          list_of(fields.at(3), to_string),
          list_of(fields.at(4), to_string),
          list_of(fields.at(5), to_tensor),
          list_of(fields.at(6), to_gradient)};
}

std::vector<char> to_bytes(const Played& played) {
  return torch::pickle_save(c10::ivalue::Tuple::create(
      Values{plain(played.parameters), of_gradients(played.gradients), plain(played.losses)}));
}

Played read_played(const fs::path& file) {
  const auto fields = read(file);
  return {list_of(fields.at(0), to_string), list_of(fields.at(1), to_gradient),
          list_of(fields.at(2), to_double)};
}

void write_bytes(const fs::path& file, const std::vector<char>& bytes) {
  fs::create_directories(file.parent_path());
  const fs::path unfinished = file.string() + ".new";
  std::ofstream out(unfinished, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (!out)
    throw Error(
        fmt::format("{}: cannot be written; free some disk space, or choose another folder "
                    "with --out DIR",
                    file.string()));
  fs::rename(unfinished, file);
}

}  // namespace ddp_doctor
