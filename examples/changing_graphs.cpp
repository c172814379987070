// SPDX-License-Identifier: BSD-3-Clause
// Programs whose set of used parameters is not the same on every rank, or at every step.
#include "examples/program_builder.h"
#include "examples/programs.h"

namespace ddp_doctor::examples {

// Stands for models that choose a branch by what the rank's data says. Even ranks use linear3, odd
// ranks linear2: DDP202 with the ranks and names. Under DDP's defaults no gradient of step 1 is
// averaged, linear1's neither; under find_unused_parameters each branch's gradient is divided by
// the world size, not by the number of ranks that used it.
torch::jit::Module conditional() {
  ProgramBuilder builder;
  torch::jit::Module program = builder.module("ConditionalModel");
  program.register_module("linear1", builder.linear(10, 20));
  program.register_module("linear2", builder.linear(20, 30));
  program.register_module("linear3", builder.linear(20, 30));
  program.define(R"(
    def forward(self, x, condition: bool):
        x = self.linear1.forward(x)
        if condition:
            x = self.linear2.forward(x)
        else:
            x = self.linear3.forward(x)
        return x

    def batch(self, rank: int, world_size: int, step: int):
        x = torch.sin(torch.arange(40) * (0.37 + 0.01 * step) + rank).reshape([4, 10])
        return x, rank % 2 == 1

    def loss(self, output):
        return output.pow(2).mean()
  )");
  return program;
}

// Stands for warm-up schedules: the refinement layer joins at step 4, on all ranks. Up to then its
// parameters are unused; static_graph=True, which records the set at step 1, fails at step 4.
torch::jit::Module step_dependent() {
  ProgramBuilder builder;
  torch::jit::Module program = builder.module("StepDependentModel");
  program.register_module("base", builder.linear(16, 16));
  program.register_module("refinement", builder.linear(16, 16));
  program.define(R"(
    def forward(self, x, refine: bool):
        x = self.base.forward(x)
        if refine:
            x = x + self.refinement.forward(torch.relu(x))
        return x

    def batch(self, rank: int, world_size: int, step: int):
        x = torch.sin(torch.arange(64) * (0.37 + 0.01 * step) + rank).reshape([4, 16])
        y = torch.cos(torch.arange(64) * (0.53 + 0.01 * step) - rank).reshape([4, 16])
        return x, step >= 4, y

    def loss(self, output, y):
        return torch.mse_loss(output, y)
  )");
  return program;
}

}  // namespace ddp_doctor::examples
