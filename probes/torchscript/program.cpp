// SPDX-License-Identifier: BSD-3-Clause
#include "probes/torchscript/program.h"

#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/jit/python/update_graph_executor_opt.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <algorithm>

#include "lib/error.h"
#include "probes/libtorch/ddp/tensors.h"
#include "probes/torchscript/torch_text.h"

namespace ddp_doctor {
namespace {

constexpr char kHowToSave[] = "save the program with torch.jit.script(model).save(\"program.pt\")";

std::string first_lines(const std::string& text, std::size_t lines) {
  std::size_t end = 0;
  for (std::size_t i = 0; i < lines && end != std::string::npos; ++i)
    end = text.find('\n', end == 0 ? 0 : end + 1);
  return text.substr(0, end);
}

// torch.save of tensors makes a zip archive too, but one without code.
bool holds_code(const std::string& file) {
  caffe2::serialize::PyTorchStreamReader reader(file);
  return reader.hasRecord("constants.pkl");
}

torch::jit::Module load(const std::string& file) {
  // Plain interpretation: what the optimizing executors fuse would hide which operation reads which
  // parameter, and change when gradients become ready.
  torch::jit::getProfilingMode() = false;
  torch::jit::setGraphExecutorOptimize(false);
  try {
    if (!holds_code(file)) {
      throw Error(fmt::format("{}: holds tensors (torch.save), not a TorchScript program; {}", file,
                              kHowToSave));
    }
    return torch::jit::load(file);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(
        fmt::format("{}: is damaged or not a TorchScript program ({}); copy it again, or {}", file,
                    first_lines(message_without_backtrace(error), 1), kHowToSave));
  }
}

// A method's parameters without self.
std::size_t arguments_of(const torch::jit::Module& module, const char* method) {
  return module.get_method(method).function().getSchema().arguments().size() - 1;
}

std::size_t required_arguments_of(const torch::jit::Module& module, const char* method) {
  const auto& arguments = module.get_method(method).function().getSchema().arguments();
  return static_cast<std::size_t>(
      std::count_if(arguments.begin() + 1, arguments.end(),
                    [](const auto& argument) { return !argument.default_value().has_value(); }));
}

// Tensors, and those in tuples and lists.
c10::IValue moved(const c10::IValue& value, const c10::Device& device) {
  if (value.isTensor()) return value.toTensor().to(device);
  if (value.isTuple()) {
    std::vector<c10::IValue> elements;
    for (const auto& element : value.toTupleRef().elements())
      elements.push_back(moved(element, device));
    return c10::ivalue::Tuple::create(std::move(elements));
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> tensors;
    for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(tensor.to(device));
    return tensors;
  }
  return value;
}

}  // namespace

Program::Program(const std::string& file, const std::vector<InputSpec>& inputs, std::int64_t seed)
    : file_(file), inputs_(inputs), seed_(seed), module_(load(file)) {
  has_training_step_ = module_.find_method("training_step").has_value();
  has_batch_ = module_.find_method("batch").has_value();
  has_loss_ = module_.find_method("loss").has_value();
  check_methods();
  module_.train();
}

void Program::move_to(const c10::Device& device) {
  device_ = device;
  module_.to(device);
}

void Program::check_methods() const {
  bool trainable = false;
  for (const at::Tensor& parameter : module_.parameters())
    trainable = trainable || parameter.requires_grad();
  if (!trainable) {
    throw Error(fmt::format(
        "{}: no parameter requires a gradient, so there is nothing to train; save a trainable "
        "model (without torch.jit.freeze, and with requires_grad=True somewhere)",
        file_));
  }
  if (has_training_step_) return;
  if (!module_.find_method("forward").has_value()) {
    throw Error(fmt::format(
        "{}: defines neither forward nor training_step; export one of them with @torch.jit.export",
        file_));
  }
  if (!has_batch_ && inputs_.size() < required_arguments_of(module_, "forward")) {
    throw Error(
        fmt::format("{}: forward needs {} input(s), {} given, and the program defines no batch(); "
                    "give each with --input, for example --input float32[8,32]",
                    file_, required_arguments_of(module_, "forward"), inputs_.size()));
  }
  if (!has_batch_ && inputs_.size() > arguments_of(module_, "forward")) {
    throw Error(fmt::format(
        "{}: forward takes {} input(s), but --input was given {} times; remove the extra ones",
        file_, arguments_of(module_, "forward"), inputs_.size()));
  }
}

std::string Program::substitutions() const {
  if (has_training_step_) return {};
  std::string text;
  if (!has_batch_) text = "inputs: random, by --input (the program defines no batch)";
  if (!has_loss_) {
    text += std::string(text.empty() ? "" : "; ") +
            "loss: mean of squares over the floating-point outputs (the program defines no loss)";
  }
  return text;
}

Program::Batch Program::batch(int rank, int world_size, std::int64_t step) {
  std::vector<c10::IValue> values;
  if (has_batch_) {
    c10::IValue result = module_.get_method("batch")({rank, world_size, step});
    values = result.isTuple() ? std::vector<c10::IValue>(result.toTupleRef().elements().begin(),
                                                         result.toTupleRef().elements().end())
                              : std::vector<c10::IValue>{result};
  } else {
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      values.emplace_back(make_input(inputs_[i], seed_, rank, step, i));
  }
  const std::size_t for_loss = has_loss_ ? arguments_of(module_, "loss") - 1 : 0;
  const std::size_t needed = required_arguments_of(module_, "forward");
  if (values.size() < needed + for_loss ||
      values.size() - for_loss > arguments_of(module_, "forward")) {
    throw Error(
        fmt::format("{}: the batch has {} value(s), but forward takes {} and loss takes {} besides "
                    "the output; return forward's arguments followed by loss's from batch()",
                    file_, values.size(), needed, for_loss));
  }
  if (device_)
    for (auto& value : values) value = moved(value, *device_);
  const auto split = values.end() - static_cast<std::ptrdiff_t>(for_loss);
  return {{values.begin(), split}, {split, values.end()}};
}

c10::IValue Program::forward(const Batch& batch) {
  return module_.get_method("forward")(batch.inputs);
}

at::Tensor Program::loss(const c10::IValue& output, const Batch& batch) {
  if (has_loss_) {
    std::vector<c10::IValue> arguments = {output};
    arguments.insert(arguments.end(), batch.rest.begin(), batch.rest.end());
    const c10::IValue loss = module_.get_method("loss")(arguments);
    if (!loss.isTensor())
      throw Error(fmt::format("{}: loss() returned a {}, not a tensor; return a scalar tensor",
                              file_, loss.tagKind()));
    return loss.toTensor();
  }
  at::Tensor sum;
  std::int64_t elements = 0;
  for (const auto& tensor : collect_tensors(output)) {
    if (!tensor.is_floating_point()) continue;
    const auto squares = tensor.pow(2).sum();
    sum = sum.defined() ? sum + squares : squares;
    elements += tensor.numel();
  }
  if (!sum.defined())
    throw Error(
        fmt::format("{}: forward returns no floating-point tensor and the program defines no "
                    "loss(); export one",
                    file_));
  return sum / static_cast<double>(std::max<std::int64_t>(elements, 1));
}

at::Tensor Program::training_step(int rank, int world_size, std::int64_t step) {
  const c10::IValue loss = module_.get_method("training_step")({rank, world_size, step});
  if (!loss.isTensor())
    throw Error(fmt::format("{}: training_step() returned a {}, not a tensor; return the loss",
                            file_, loss.tagKind()));
  return loss.toTensor();
}

void Program::check_loss(const at::Tensor& loss) const {
  if (loss.numel() != 1) {
    throw Error(fmt::format(
        "{}: the loss has shape {}, not a single value; reduce it, for example with .mean()", file_,
        fmt::format("[{}]", fmt::join(loss.sizes().begin(), loss.sizes().end(), ", "))));
  }
  if (!loss.requires_grad()) {
    throw Error(
        fmt::format("{}: the loss does not depend on any trainable parameter; check for detach(), "
                    "no_grad and the method's arguments",
                    file_));
  }
}

void Program::rehearse(int rank, int world_size) const {
  Program copy(*this);
  copy.module_ = module_.deepcopy();
  const char* method = "training_step";
  try {
    if (has_training_step_) {
      check_loss(copy.training_step(rank, world_size, 1));
      return;
    }
    method = "batch";
    const Batch batch = copy.batch(rank, world_size, 1);
    method = "forward";
    const c10::IValue output = copy.forward(batch);
    method = "loss";
    check_loss(copy.loss(output, batch));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    std::string given;
    for (const auto& input : inputs_) given += " --input " + input.text;
    throw Error(fmt::format(
        "{}: {}() failed on its own, before anything was synchronized{}: {}\nFix the program{}.",
        file_, method, given.empty() ? "" : ", with" + given, raised_line(error),
        given.empty() ? "" : ", or give inputs of the dtype and shape that it expects"));
  }
}

}  // namespace ddp_doctor
