// SPDX-License-Identifier: BSD-3-Clause
// A module for the wrapper and the examination: parameters in the reducer's order, buffers, and
// their names.
#pragma once

#include <torch/script.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

namespace ddp_doctor {

struct NamedTensor {
  std::string name;  // as the module gives it ("fc.weight")
  at::Tensor tensor;
  bool is_buffer = false;
};

struct ModuleState {
  std::string type_name;  // type(module).__name__ in Python; printed in the INFO block
  std::vector<std::string>
      names;  // of `parameters`, as the module gives them ("fc.weight"; no leading dot)
  std::vector<at::Tensor>
      parameters;  // trainable, each once (first name wins), in the reducer's order
  std::vector<bool> expect_sparse;  // per parameter: owned by an Embedding(Bag) with sparse=true
  std::vector<at::Tensor>
      all_parameters;  // including frozen ones, each once: the tensors of the first broadcast
  std::function<std::vector<at::Tensor>()>
      buffers;  // collected again at each call: a program may re-assign them
  std::function<std::vector<NamedTensor>()>
      tensors;  // parameters, including frozen ones, and buffers, each once; collected again at
                // each call
  std::function<void()> without_dropout;  // turns it off in every nn.Dropout of any kind
};

// `module` must outlive the result, whose `buffers` and `tensors` refer to it. (A
// torch::jit::Module is a handle, and is kept.)
ModuleState describe(const torch::nn::Module& module);
ModuleState describe(const torch::jit::Module& module);

}  // namespace ddp_doctor
