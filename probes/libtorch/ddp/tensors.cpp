// SPDX-License-Identifier: BSD-3-Clause
#include "probes/libtorch/ddp/tensors.h"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>

namespace ddp_doctor {
namespace {

c10::IValue visit_tuple(const c10::IValue& value, const TensorVisitor& visit) {
  std::vector<c10::IValue> elements = value.toTupleRef().elements().vec();
  for (c10::IValue& element : elements) visit_ivalue(element, visit);
  const auto type = value.toTuple()->type();
  if (type->name()) return c10::ivalue::Tuple::createNamed(std::move(elements), type);
  return c10::ivalue::Tuple::create(std::move(elements));
}

c10::IValue visit_list(const c10::IValue& value, const TensorVisitor& visit) {
  const c10::List<c10::IValue> before = value.toList();
  c10::impl::GenericList after(before.elementType());
  after.reserve(before.size());
  for (size_t i = 0; i < before.size(); ++i) {
    c10::IValue element = before.get(i);
    visit_ivalue(element, visit);
    after.push_back(std::move(element));
  }
  return after;
}

c10::IValue visit_dict(const c10::IValue& value, const TensorVisitor& visit) {
  const c10::Dict<c10::IValue, c10::IValue> before = value.toGenericDict();
  c10::impl::GenericDict after(before.keyType(), before.valueType());
  for (const auto& entry : before) {
    c10::IValue element = entry.value();
    visit_ivalue(element, visit);
    after.insert(entry.key(), std::move(element));
  }
  return after;
}

}  // namespace

void visit_ivalue(c10::IValue& value, const TensorVisitor& visit) {
  if (value.isTensor()) {
    at::Tensor tensor = value.toTensor();
    if (!tensor.defined()) return;
    visit(tensor);
    value = std::move(tensor);
  } else if (value.isTuple()) {
    value = visit_tuple(value, visit);
  } else if (value.isList()) {
    value = visit_list(value, visit);
  } else if (value.isGenericDict()) {
    value = visit_dict(value, visit);
  }
}

}  // namespace ddp_doctor
