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
  vector_loss().save((folder / "vector_loss.pt").string());
  all_frozen().save((folder / "all_frozen.pt").string());
  save_tensors((folder / "tensors.pt").string());
  return 0;
}
