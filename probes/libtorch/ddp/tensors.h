// SPDX-License-Identifier: BSD-3-Clause
// Finds the tensors in the return value of a forward, and replaces them.
//
// Supported are at::Tensor, c10::IValue (with nested lists, tuples and dicts), std::optional,
// std::pair, std::tuple and iterable containers (std::vector, std::array, std::map), in any
// nesting. For your own type, write
//   void visit_tensors(MyOutput& output, const ddp_doctor::TensorVisitor& visit)
// in its namespace; without it a class does not compile, because the wrapper would treat parameters
// behind a missed tensor as unused.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <iterator>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace ddp_doctor {

using TensorVisitor = std::function<void(at::Tensor&)>;

// Visits each defined tensor. Containers are copied, as by PyTorch's tree_unflatten: containers
// that the program keeps are not changed. As in Python, objects of TorchScript classes are not
// searched.
void visit_ivalue(c10::IValue& value, const TensorVisitor& visit);

namespace detail {

template <class>
inline constexpr bool kFalse = false;

template <class T>
concept Optional = requires(T value) {
  value.has_value();
  *value;
};
template <class T>
concept Iterable = requires(T value) {
  std::begin(value);
  std::end(value);
};
template <class T>
concept TupleLike = requires {
  std::tuple_size<T>::value;
};
template <class T>
concept Visitable = requires(T value, const TensorVisitor& visit) {
  visit_tensors(value, visit);
};
template <class T>
concept Plain =
    std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_convertible_v<T, std::string>;

}  // namespace detail

template <class T>
void for_each_tensor(T& value, const TensorVisitor& visit) {
  using Value = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<T, at::Tensor>) {
    if (value.defined()) visit(value);
  } else if constexpr (std::is_same_v<T, c10::IValue>) {
    visit_ivalue(value, visit);
  } else if constexpr (detail::Plain<Value>) {
    return;
  } else if constexpr (detail::Visitable<T>) {
    visit_tensors(value, visit);
  } else if constexpr (detail::Iterable<T>) {
    if constexpr (!detail::Plain<std::remove_cvref_t<decltype(*std::begin(value))>> &&
                  std::is_lvalue_reference_v<decltype(*std::begin(value))>) {
      for (auto& element : value) for_each_tensor(element, visit);
    }
  } else if constexpr (detail::TupleLike<Value>) {
    std::apply([&](auto&... element) { (for_each_tensor(element, visit), ...); }, value);
  } else if constexpr (detail::Optional<T>) {
    if (value.has_value()) for_each_tensor(*value, visit);
  } else {
    static_assert(detail::kFalse<T>,
                  "give this type a visit_tensors(): see probes/libtorch/ddp/tensors.h");
  }
}

// All tensors in `value`, in a fixed order.
template <class T>
std::vector<at::Tensor> collect_tensors(const T& value) {
  std::vector<at::Tensor> found;
  T copy = value;
  for_each_tensor(copy, [&](at::Tensor& tensor) { found.push_back(tensor); });
  return found;
}

// Replaces the tensors that collect_tensors found by `replacements`, in the same order.
template <class T>
void replace_tensors(T& value, const std::vector<at::Tensor>& replacements) {
  size_t next = 0;
  for_each_tensor(value, [&](at::Tensor& tensor) { tensor = replacements.at(next++); });
}

}  // namespace ddp_doctor
