// SPDX-License-Identifier: BSD-3-Clause
// The autograd node that the wrapper appends to a forward's graph, like PyTorch's _DDPSink.
//
// All outputs go through ONE node. When the loss uses some of them only, backward still enters the
// graph above the others, with undefined gradients: every parameter's hook fires, the reducer
// counts it as ready, and its .grad stays untouched. With a node per output, the hooks above an
// unused output would never fire, and the bucket never be sent.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace ddp_doctor {

// Outputs that have a grad_fn come back as copies behind the node; the others come back as they
// are. `on_backward` is called whenever a backward pass enters the node, in the thread that runs
// it.
std::vector<at::Tensor> pass_through(std::vector<at::Tensor> outputs,
                                     std::function<void()> on_backward);

}  // namespace ddp_doctor
