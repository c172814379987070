// SPDX-License-Identifier: BSD-3-Clause
#include "probes/libtorch/parity/samples.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>

namespace ddp_doctor {
namespace {

using Change = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

// `parts`: the same place in the samples of several ranks. `otherwise`: what becomes of values that
// hold no tensor.
c10::IValue combine(const std::vector<c10::IValue>& parts, const Change& change,
                    const std::function<void(const std::vector<c10::IValue>&)>& otherwise) {
  const auto& first = parts.front();
  const auto is_same_kind = [&](const c10::IValue& part) {
    return part.tagKind() == first.tagKind();
  };
  if (!std::all_of(parts.begin(), parts.end(), is_same_kind)) {
    otherwise(parts);
    return first;
  }
  const auto combine_elements = [&](const auto& elements_of) {
    const std::size_t count = elements_of(first).size();
    std::vector<c10::IValue> elements;
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<c10::IValue> of_each;
      for (const auto& part : parts) {
        if (elements_of(part).size() != count)
          throw Impossible("the batches have different numbers of tensors");
        of_each.push_back(elements_of(part)[i]);
      }
      elements.push_back(combine(of_each, change, otherwise));
    }
    return elements;
  };
  if (first.isTensor()) {
    std::vector<at::Tensor> tensors;
    for (const auto& part : parts) tensors.push_back(part.toTensor());
    return change(tensors);
  }
  if (first.isTuple()) {
    return c10::ivalue::Tuple::create(combine_elements([](const c10::IValue& value) {
      const auto& elements = value.toTupleRef().elements();
      return std::vector<c10::IValue>(elements.begin(), elements.end());
    }));
  }
  if (first.isTensorList()) {
    c10::List<at::Tensor> list;
    const auto tensors = combine_elements([](const c10::IValue& value) {
      const auto tensors = value.toTensorVector();
      return std::vector<c10::IValue>(tensors.begin(), tensors.end());
    });
    for (const auto& tensor : tensors) list.push_back(tensor.toTensor());
    return list;
  }
  if (first.isGenericDict()) {
    const auto dictionary = first.toGenericDict();
    c10::impl::GenericDict combined(dictionary.keyType(), dictionary.valueType());
    for (const auto& entry : dictionary) {
      std::vector<c10::IValue> of_each;
      for (const auto& part : parts) {
        const auto other = part.toGenericDict();
        const auto found = other.find(entry.key());
        if (found == other.end()) throw Impossible("the batches have different keys");
        of_each.push_back(found->value());
      }
      combined.insert(entry.key(), combine(of_each, change, otherwise));
    }
    return combined;
  }
  otherwise(parts);
  return first;
}

Samples combine_all(const std::vector<Samples>& ranks, const Change& change,
                    const std::function<void(const std::vector<c10::IValue>&)>& otherwise) {
  Samples combined;
  for (std::size_t i = 0; i < ranks.front().size(); ++i) {
    std::vector<c10::IValue> parts;
    for (const auto& samples : ranks) {
      if (samples.size() != ranks.front().size())
        throw Impossible("the batches have different numbers of tensors");
      parts.push_back(samples[i]);
    }
    combined.push_back(combine(parts, change, otherwise));
  }
  return combined;
}

void for_each_tensor(const Samples& samples, const std::function<void(const at::Tensor&)>& see) {
  map_tensors(samples, [&](const at::Tensor& tensor) {
    see(tensor);
    return tensor;
  });
}

bool has_rows(const at::Tensor& tensor, std::int64_t rows) {
  return tensor.dim() > 0 && tensor.size(0) == rows;
}

bool is_mask(const at::Tensor& tensor) {
  return at::logical_or(tensor == 0, tensor == 1).all().item<bool>();
}

}  // namespace

Samples map_tensors(const Samples& samples,
                    const std::function<at::Tensor(const at::Tensor&)>& change) {
  return combine_all(
      {samples}, [&](const auto& tensors) { return change(tensors.front()); }, [](const auto&) {});
}

std::int64_t count_samples(const Samples& samples) {
  std::int64_t count = 0;
  for_each_tensor(samples, [&](const at::Tensor& tensor) {
    if (count == 0 && tensor.dim() > 0) count = tensor.size(0);
  });
  return count;
}

std::string shapes_of(const Samples& samples) {
  std::vector<std::string> shapes;
  for_each_tensor(samples, [&](const at::Tensor& tensor) {
    shapes.push_back(fmt::format("[{}]", fmt::join(tensor.sizes(), ", ")));
  });
  return fmt::format("{}", fmt::join(shapes, " "));
}

Samples join(const std::vector<Samples>& ranks) {
  std::vector<std::int64_t> rows;
  for (const auto& samples : ranks) rows.push_back(count_samples(samples));
  const auto join_tensors = [&](const std::vector<at::Tensor>& tensors) {
    const auto& first = tensors.front();
    bool by_sample = true;
    for (std::size_t rank = 0; rank < tensors.size(); ++rank)
      by_sample = by_sample && has_rows(tensors[rank], rows[rank]);
    if (!by_sample) {
      for (const auto& tensor : tensors) {
        if (tensor.sizes() != first.sizes() || !tensor.equal(first))
          throw Impossible(
              "a tensor of the batches does not count the samples by its first dimension, and is "
              "not the same on all ranks");
      }
      return first;
    }
    for (const auto& tensor : tensors) {
      if (tensor.sizes().slice(1) != first.sizes().slice(1))
        throw Impossible(fmt::format(
            "the ranks' samples have different shapes, [{}] and [{}], and cannot be one batch",
            fmt::join(first.sizes(), ", "), fmt::join(tensor.sizes(), ", ")));
    }
    return at::cat(tensors, 0);
  };
  return combine_all(ranks, join_tensors, [](const std::vector<c10::IValue>& parts) {
    for (const auto& part : parts) {
      if (part.tagKind() != parts.front().tagKind() || part != parts.front())
        throw Impossible("a value in the batches is no tensor, and is not the same on all ranks");
    }
  });
}

Samples put_into(const Samples& own, const Samples& samples) {
  const std::int64_t rows = count_samples(samples);
  return combine_all(
      {own, samples},
      [&](const std::vector<at::Tensor>& tensors) {
        return has_rows(tensors[1], rows)
                   ? tensors[1].to(tensors[0].device(), tensors[1].scalar_type(), false, true)
                   : tensors[0];
      },
      [](const auto&) {});
}

Samples reversed(const Samples& samples) {
  const std::int64_t rows = count_samples(samples);
  return map_tensors(samples, [&](const at::Tensor& tensor) {
    return has_rows(tensor, rows) ? tensor.flip(0) : tensor;
  });
}

std::map<std::string, double> counts_of(const Samples& samples) {
  std::map<std::string, double> counts = {{"samples", static_cast<double>(count_samples(samples))}};
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (!samples[i].isTensor()) continue;
    const at::Tensor tensor = samples[i].toTensor();
    const bool counted = tensor.dim() > 1 && (!tensor.is_floating_point() || is_mask(tensor));
    if (!counted) continue;
    const std::string name = fmt::format("batch[{}]", i);
    const auto number = [](const at::Tensor& which) {
      return static_cast<double>(which.sum().item<std::int64_t>());
    };
    if ((tensor == -100).any().item<bool>()) {
      counts[name + " that are not -100"] = number(tensor != -100);
      counts[name + " but the first that are not -100"] = number(tensor.slice(1, 1) != -100);
    }
    counts[name + " that are not 0"] = number(tensor != 0);
  }
  return counts;
}

}  // namespace ddp_doctor
