// SPDX-License-Identifier: BSD-3-Clause
// TorchScript programs that only tests need: each is wrong or bare in one way.
// usage: make_fixtures DIR

#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/script.h>

#include <filesystem>
#include <iostream>
#include <string>

#include "examples/program_builder.h"

namespace {

using ddp_doctor::examples::ProgramBuilder;

// Neither batch nor loss: needs --input, gets the substitute loss.
torch::jit::Module bare() {
  ProgramBuilder builder;
  auto program = builder.module("Bare");
  program.register_module("head", builder.linear(32, 4));
  program.define(R"(
    def forward(self, x):
        return self.head.forward(x)
  )");
  return program;
}

// Draws random numbers in its forward, and not in a module of that name.
torch::jit::Module functional_dropout() {
  ProgramBuilder builder;
  auto program = builder.module("FunctionalDropout");
  program.register_module("head", builder.linear(8, 4));
  program.define(R"(
    def forward(self, x):
        return torch.dropout(self.head.forward(x), 0.5, True)

    def batch(self, rank: int, world_size: int, step: int):
        return torch.sin(torch.arange(64) * 0.7 + rank + step).reshape([8, 8])

    def loss(self, output):
        return output.pow(2).mean()
  )");
  return program;
}

torch::jit::Module vector_loss() {
  ProgramBuilder builder;
  auto program = builder.module("VectorLoss");
  program.register_module("head", builder.linear(4, 8));
  program.define(R"(
    def training_step(self, rank: int, world_size: int, step: int):
        return self.head.forward(torch.ones([4]) * step)
  )");
  return program;
}

// One layer in single precision, one in double; `one` lifts what comes between.
torch::jit::Module two_dtypes(std::int64_t width) {
  ProgramBuilder builder;
  auto program = builder.module("TwoDtypes");
  program.register_module("single", builder.linear(4, width));
  auto wide = builder.linear(width, 2);
  wide.to(torch::kDouble);
  program.register_module("wide", wide);
  program.register_buffer("one", torch::ones({1}, torch::kDouble));
  program.define(R"(
    def forward(self, x):
        return self.wide.forward(torch.tanh(self.single.forward(x)) * self.one)

    def batch(self, rank: int, world_size: int, step: int):
        return torch.sin(torch.arange(12) * (0.37 + 0.01 * step) + rank).reshape([3, 4])

    def loss(self, output):
        return output.pow(2).mean()
  )");
  return program;
}

// Rank 1 never leaves step 3.
torch::jit::Module endless() {
  ProgramBuilder builder;
  auto program = builder.module("Endless");
  program.register_module("head", builder.linear(4, 8));
  program.define(R"(
    def training_step(self, rank: int, world_size: int, step: int):
        x = torch.ones([4]) * (rank + step)
        while rank == 1 and step == 3 and bool(x.sum() > 0):
            x = torch.ones([4])
        return self.head.forward(x).mean()
  )");
  return program;
}

// Rank 1 meets NaN in step 4.
torch::jit::Module nan_on_rank_one() {
  ProgramBuilder builder;
  auto program = builder.module("NanOnRankOne");
  program.register_module("head", builder.linear(4, 4));
  program.define(R"(
    def training_step(self, rank: int, world_size: int, step: int):
        x = torch.ones([2, 4]) * (rank + step)
        if rank == 1 and step == 4:
            x = x / 0.0 - x / 0.0
        return self.head.forward(x).pow(2).mean()
  )");
  return program;
}

// `late` is left out where `condition`, a TorchScript expression of rank and step, is true.
torch::jit::Module skips(const std::string& condition) {
  ProgramBuilder builder;
  auto program = builder.module("Skips");
  program.register_module("head", builder.linear(4, 4));
  program.register_module("late", builder.linear(4, 4));
  program.define(R"(
    def forward(self, x, skip: bool):
        y = self.head.forward(x)
        if not skip:
            y = self.late.forward(y)
        return y

    def batch(self, rank: int, world_size: int, step: int):
        return torch.sin(torch.arange(8) * 0.3 + rank + step).reshape([2, 4]), )" +
                 condition + "\n");
  return program;
}

// The weights and data of python/test_recorders.py. Where it `drops`, `late` is read, but the
// output does not depend on it, and `orphan` is never called.
torch::jit::Module recorded(bool drops) {
  ProgramBuilder builder;
  auto program = builder.module("Net");
  if (drops) program.register_module("orphan", builder.linear(8, 8));
  program.register_module("head", builder.linear(4, 8));
  auto fixed = builder.linear(8, 8);
  for (at::Tensor parameter : fixed.parameters()) parameter.set_requires_grad(false);
  program.register_module("fixed", fixed);
  program.register_module("late", builder.linear(8, 8));
  program.register_buffer("mean", torch::zeros({1}));
  const std::string condition = drops ? "step % 4 == 2" : "False";
  program.define(R"(
    def forward(self, x, drops: bool):
        self.mean.add_(x.mean())
        y = self.fixed.forward(torch.tanh(self.head.forward(x)))
        if drops:
            y = y + self.late.forward(y).detach()
        else:
            y = self.late.forward(y)
        return y

    def batch(self, rank: int, world_size: int, step: int):
        x = torch.sin(torch.arange(16) * (0.37 + 0.01 * step) + rank).reshape([4, 4])
        return x, )" +
                 condition + R"(

    def loss(self, output):
        return output.pow(2).mean()
  )");
  return program;
}

torch::jit::Module all_frozen() {
  auto program = bare();
  for (at::Tensor parameter : program.parameters()) parameter.set_requires_grad(false);
  return program;
}

// As Python's torch.save({"w": tensor}) leaves it: a zip archive with data and without code.
void save_tensors(const std::string& file) {
  caffe2::serialize::PyTorchStreamWriter writer(file);
  const std::vector<char> data = torch::jit::pickle_save(torch::ones({4}));
  writer.writeRecord("data.pkl", data.data(), data.size());
  writer.writeEndOfFile();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: make_fixtures DIR\n";
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder);
  bare().save((folder / "bare.pt").string());
  functional_dropout().save((folder / "functional_dropout.pt").string());
  vector_loss().save((folder / "vector_loss.pt").string());
  skips("step == 14").save((folder / "drops_layer.pt").string());
  skips("rank == 1 and step == 5").save((folder / "one_rank_skips.pt").string());
  nan_on_rank_one().save((folder / "nan_on_rank_one.pt").string());
  two_dtypes(8).save((folder / "two_dtypes.pt").string());
  two_dtypes(9).save((folder / "two_dtypes_wide.pt").string());
  endless().save((folder / "endless.pt").string());
  all_frozen().save((folder / "all_frozen.pt").string());
  recorded(false).save((folder / "recorded.pt").string());
  recorded(true).save((folder / "recorded_drops.pt").string());
  save_tensors((folder / "tensors.pt").string());
  return 0;
}
