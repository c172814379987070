// SPDX-License-Identifier: BSD-3-Clause
// Small programs that are right in themselves: under the strategy `ddp` nothing is to be found.
// What goes wrong with them goes wrong by how they are synchronized, or by a crash.
#include "examples/program_builder.h"
#include "examples/programs.h"

namespace ddp_doctor::examples {

// Stands for a curriculum trainer that wraps its model and then computes the loss on the unwrapped
// module. The model is healthy; the strategy `bypass` is that trainer's mistake (DDP101).
// Each rank has its own shard, shifted by the rank.
torch::jit::Module curriculum() {
  ProgramBuilder builder;
  torch::jit::Module program = builder.module("CurriculumModel");
  program.register_module("fc", builder.linear(4, 4));
  program.define(R"(
    def forward(self, x):
        return self.fc.forward(x)

    def batch(self, rank: int, world_size: int, step: int):
        x = torch.sin(torch.arange(16) * (1.3 + 0.07 * step)).reshape([4, 4]) * 0.5 + rank
        y = torch.cos(torch.arange(16) * (2.1 + 0.11 * step)).reshape([4, 4])
        return x, y

    def loss(self, output, y):
        return torch.mse_loss(output, y)
  )");
  return program;
}

// Stands for models said to need find_unused_parameters because they have several stages. Every
// stage always takes part, so the flag only costs time (DDP204).
torch::jit::Module multi_forward() {
  ProgramBuilder builder;
  torch::jit::Module program = builder.module("MultiForwardModel");
  program.register_module("linear_init", builder.linear(10, 20));
  program.register_module("linear_first", builder.linear(20, 30));
  program.register_module("linear_second", builder.linear(30, 40));
  program.define(R"(
    def forward(self, x):
        initial = self.linear_init.forward(x)
        first = self.linear_first.forward(initial)
        return self.linear_second.forward(first)

    def batch(self, rank: int, world_size: int, step: int):
        return torch.sin(torch.arange(40) * (0.37 + 0.01 * step) + rank).reshape([4, 10])

    def loss(self, output):
        return output.pow(2).mean()
  )");
  return program;
}

// Stands for language models whose loss is a mean over the tokens that are no padding, of which
// each rank has another number: the ranks agree, and train on something else than one process does
// (ddp-doctor parity: DDP702).
torch::jit::Module token_mean() {
  ProgramBuilder builder;
  torch::jit::Module program = builder.module("TokenMeanModel");
  program.register_module("embedding", builder.linear(8, 16));
  program.register_module("head", builder.linear(16, 12));
  program.define(R"(
    def forward(self, x):
        return self.head.forward(torch.tanh(self.embedding.forward(x)))

    def batch(self, rank: int, world_size: int, step: int):
        x = torch.sin(torch.arange(192) * (0.37 + 0.01 * step) + rank).reshape([4, 6, 8])
        labels = (torch.arange(24).reshape([4, 6]) * (3 + step) + rank) % 12
        padding = torch.arange(6).unsqueeze(0) >= 2 + rank + torch.arange(4).unsqueeze(1) % 2
        return x, labels.masked_fill(padding, -100)

    def loss(self, output, labels):
        return torch.cross_entropy_loss(output.flatten(0, 1), labels.flatten(), None, 1, -100)
  )");
  return program;
}

// Stands for programs without a separate forward and loss: one method yields the loss.
torch::jit::Module training_step() {
  ProgramBuilder builder;
  torch::jit::Module program = builder.module("TrainingStepModel");
  program.register_module("encoder", builder.linear(16, 32));
  program.register_module("decoder", builder.linear(32, 16));
  program.define(R"(
    def training_step(self, rank: int, world_size: int, step: int):
        x = torch.sin(torch.arange(64) * (0.37 + 0.01 * step) + rank).reshape([4, 16])
        hidden = torch.relu(self.encoder.forward(x))
        return torch.mse_loss(self.decoder.forward(hidden), x)
  )");
  return program;
}

// Stands for one rank that meets a bad sample. The others only see a lost connection; ddp-doctor
// names rank 1, step 3 and its error (DDP504). One rank alone trains to the end.
torch::jit::Module rank_crash() {
  ProgramBuilder builder;
  torch::jit::Module program = builder.module("RankCrashModel");
  program.register_module("fc", builder.linear(16, 16));
  program.define(R"(
    def forward(self, x):
        return self.fc.forward(x)

    def batch(self, rank: int, world_size: int, step: int):
        assert rank != 1 or step != 3, "the sample of rank 1 at step 3 is corrupt"
        x = torch.sin(torch.arange(64) * (0.37 + 0.01 * step) + rank).reshape([4, 16])
        y = torch.cos(torch.arange(64) * (0.53 + 0.01 * step) - rank).reshape([4, 16])
        return x, y

    def loss(self, output, y):
        return torch.mse_loss(output, y)
  )");
  return program;
}

// Stands for fine-tuning: the backbone was frozen before wrapping, so DDP never expects gradients
// of it. A tool that takes its parameters for unused ones would be wrong.
torch::jit::Module frozen_backbone() {
  ProgramBuilder builder;
  torch::jit::Module program = builder.module("FrozenBackboneModel");
  program.register_module("backbone", builder.linear(16, 32));
  program.register_module("head", builder.linear(32, 8));
  for (at::Tensor parameter : program.attr("backbone").toModule().parameters()) {
    parameter.set_requires_grad(false);
  }
  program.define(R"(
    def forward(self, x):
        return self.head.forward(torch.relu(self.backbone.forward(x)))

    def batch(self, rank: int, world_size: int, step: int):
        x = torch.sin(torch.arange(64) * (0.37 + 0.01 * step) + rank).reshape([4, 16])
        y = torch.cos(torch.arange(32) * (0.53 + 0.01 * step) - rank).reshape([4, 8])
        return x, y

    def loss(self, output, y):
        return torch.mse_loss(output, y)
  )");
  return program;
}

}  // namespace ddp_doctor::examples
