// SPDX-License-Identifier: BSD-3-Clause
#include "probes/torchscript/collective_calls.h"

#include "probes/libtorch/module/tensor_view.h"

namespace ddp_doctor {

LoggedCall CollectiveCalls::wrapper_call(const char* op, bool paired) {
  LoggedCall call;
  call.position = paired ? ++position_ : 0;
  call.step = step_;
  call.op = op;
  call.target = "wrapper 0";
  return call;
}

LoggedCall CollectiveCalls::gradient_call(const at::Tensor& gradient, const std::string& name) {
  LoggedCall call;
  call.position = ++position_;
  call.step = step_;
  call.op = "all_reduce";
  call.reduce = "sum";
  call.dtype = dtype_name(gradient.scalar_type());
  call.numel = gradient.numel();
  call.moment = "before-step";
  if (!name.empty()) call.target = "gradient of " + name;
  return call;
}

}  // namespace ddp_doctor
