// SPDX-License-Identifier: BSD-3-Clause
#include "examples/program_builder.h"

#include <cmath>
#include <fstream>
#include <system_error>

#include "lib/error.h"

namespace ddp_doctor::examples {

using torch::jit::Module;

namespace {

// A trainable tensor, uniform in [-bound, bound].
at::Tensor uniform_parameter(at::IntArrayRef sizes, double bound) {
  return torch::empty(sizes).uniform_(-bound, bound).set_requires_grad(true);
}

}  // namespace

ProgramBuilder::ProgramBuilder() : unit_(std::make_shared<torch::jit::CompilationUnit>()) {
  torch::manual_seed(0);
}

Module ProgramBuilder::module(const std::string& class_name) {
  const c10::QualifiedName name("__torch__." + class_name);
  const auto known = unit_->get_class(name);
  Module made = known ? Module(unit_, known) : Module(name, unit_);
  made.register_attribute("training", c10::BoolType::get(), true);
  return made;
}

void ProgramBuilder::define_once(Module& module, const std::string& source) {
  if (!module.find_method("forward")) module.define(source);
}

Module ProgramBuilder::linear(std::int64_t in_features, std::int64_t out_features) {
  const double bound = 1.0 / std::sqrt(static_cast<double>(in_features));
  Module layer = module("Linear");
  layer.register_parameter("weight", uniform_parameter({out_features, in_features}, bound), false);
  layer.register_parameter("bias", uniform_parameter({out_features}, bound), false);
  define_once(layer, R"(
    def forward(self, x):
        return torch.linear(x, self.weight, self.bias)
  )");
  return layer;
}

Module ProgramBuilder::layer_norm(std::int64_t features) {
  Module layer = module("LayerNorm");
  layer.register_parameter("weight", torch::ones({features}).set_requires_grad(true), false);
  layer.register_parameter("bias", torch::zeros({features}).set_requires_grad(true), false);
  define_once(layer, R"(
    def forward(self, x):
        return torch.layer_norm(x, [self.weight.size(0)], self.weight, self.bias, 1e-5, False)
  )");
  return layer;
}

Module ProgramBuilder::embedding(std::int64_t entries, std::int64_t features) {
  Module layer = module("Embedding");
  layer.register_parameter("weight", uniform_parameter({entries, features}, 0.1), false);
  define_once(layer, R"(
    def forward(self, tokens):
        return torch.embedding(self.weight, tokens)
  )");
  return layer;
}

Module ProgramBuilder::conv3x3(std::int64_t in_channels, std::int64_t out_channels) {
  const double bound = 1.0 / std::sqrt(static_cast<double>(in_channels * 9));
  Module layer = module("Conv2d");
  const auto weight = uniform_parameter({out_channels, in_channels, 3, 3}, bound);
  layer.register_parameter("weight", weight, false);
  layer.register_parameter("bias", uniform_parameter({out_channels}, bound), false);
  define_once(layer, R"(
    def forward(self, x):
        return torch.conv2d(x, self.weight, self.bias, [1, 1], [1, 1], [1, 1], 1)
  )");
  return layer;
}

Module ProgramBuilder::batch_norm(std::int64_t channels) {
  Module layer = module("BatchNorm2d");
  layer.register_parameter("weight", torch::ones({channels}).set_requires_grad(true), false);
  layer.register_parameter("bias", torch::zeros({channels}).set_requires_grad(true), false);
  layer.register_buffer("running_mean", torch::zeros({channels}));
  layer.register_buffer("running_var", torch::ones({channels}));
  layer.register_buffer("num_batches_tracked", torch::zeros({}, torch::kLong));
  define_once(layer, R"(
    def forward(self, x):
        if self.training:
            self.num_batches_tracked.add_(1)
        return torch.batch_norm(x, self.weight, self.bias, self.running_mean, self.running_var,
                                self.training, 0.1, 1e-5, False)
  )");
  return layer;
}

void save_program(const Module& program, const std::filesystem::path& file) {
  std::filesystem::path partial = file;
  partial += ".partial";
  // A stream, not a name: LibTorch writes a file's own name into the archive.
  std::ofstream stream(partial, std::ios::binary | std::ios::trunc);
  if (stream) program.save(stream);
  stream.close();
  std::error_code failure;
  if (stream) std::filesystem::rename(partial, file, failure);
  if (!stream || failure) {
    std::error_code ignored;
    std::filesystem::remove(partial, ignored);
    throw Error("cannot write " + file.string() + (failure ? ": " + failure.message() : "") +
                "; check that the folder exists, is writable and has space");
  }
}

}  // namespace ddp_doctor::examples
