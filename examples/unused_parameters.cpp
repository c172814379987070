// SPDX-License-Identifier: BSD-3-Clause
// Programs whose graph never reaches some trainable parameters, each for another reason. DDP's
// defaults stop them at the second forward, after one optimizer step on local gradients of ALL
// parameters; ddp-doctor reports DDP201 with the names and the reason.
#include "examples/program_builder.h"
#include "examples/programs.h"

namespace ddp_doctor::examples {

// Stands for a library model that ships a layer its forward never calls, and for trainers that
// offer no static_graph switch. `orphan` comes first, so its parameters have indices 0 and 1, the
// ones that PyTorch's error prints. Reason: never called.
torch::jit::Module orphan() {
  ProgramBuilder builder;
  torch::jit::Module program = builder.module("OrphanModel");
  program.register_module("orphan", builder.linear(32, 32));
  program.register_module("head", builder.linear(32, 32));
  program.define(R"(
    def forward(self, inputs):
        return self.head.forward(inputs)

    def batch(self, rank: int, world_size: int, step: int):
        inputs = torch.sin(torch.arange(64) * (0.37 + 0.01 * step) + rank).reshape([2, 32])
        labels = torch.cos(torch.arange(64) * (0.53 + 0.01 * step) - rank).reshape([2, 32])
        return inputs, labels

    def loss(self, output, labels):
        return torch.mse_loss(output, labels)
  )");
  return program;
}

// Stands for models with an auxiliary head whose output the loss forgets. Reason: the head runs
// and its output is returned, but is not in the loss.
torch::jit::Module multi_output() {
  ProgramBuilder builder;
  torch::jit::Module program = builder.module("MultiOutputModel");
  program.register_module("trunk", builder.linear(16, 32));
  program.register_module("main_head", builder.linear(32, 8));
  program.register_module("auxiliary_head", builder.linear(32, 4));
  program.define(R"(
    def forward(self, x):
        hidden = torch.relu(self.trunk.forward(x))
        return self.main_head.forward(hidden), self.auxiliary_head.forward(hidden)

    def batch(self, rank: int, world_size: int, step: int):
        x = torch.sin(torch.arange(64) * (0.37 + 0.01 * step) + rank).reshape([4, 16])
        y = torch.cos(torch.arange(32) * (0.53 + 0.01 * step) - rank).reshape([4, 8])
        return x, y

    def loss(self, output: Tuple[Tensor, Tensor], y):
        return torch.mse_loss(output[0], y)
  )");
  return program;
}

// Stands for code that detaches one branch too many. `side` contributes to the output's value, so
// the loss looks right. Reason: detached.
torch::jit::Module detached() {
  ProgramBuilder builder;
  torch::jit::Module program = builder.module("DetachedModel");
  program.register_module("encoder", builder.linear(16, 32));
  program.register_module("side", builder.linear(32, 32));
  program.register_module("head", builder.linear(32, 8));
  program.define(R"(
    def forward(self, x):
        hidden = torch.relu(self.encoder.forward(x))
        side = self.side.forward(hidden).detach()
        return self.head.forward(hidden + side)

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
