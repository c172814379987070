// SPDX-License-Identifier: BSD-3-Clause
// Stands for image classifiers with BatchNorm. Healthy under `ddp`: its running statistics differ
// between two forwards, because each rank sees its own images, and the next forward's broadcast
// makes them equal again. A tool that alarms on that would be wrong.
#include "examples/program_builder.h"
#include "examples/programs.h"

namespace ddp_doctor::examples {

torch::jit::Module cnn() {
  ProgramBuilder builder;
  torch::jit::Module program = builder.module("SmallCnn");
  program.register_module("conv1", builder.conv3x3(3, 16));
  program.register_module("bn1", builder.batch_norm(16));
  program.register_module("conv2", builder.conv3x3(16, 32));
  program.register_module("bn2", builder.batch_norm(32));
  program.register_module("classifier", builder.linear(32, 10));
  program.define(R"(
    def forward(self, images):
        x = torch.relu(self.bn1.forward(self.conv1.forward(images)))
        x = torch.max_pool2d(x, [2, 2])
        x = torch.relu(self.bn2.forward(self.conv2.forward(x)))
        return self.classifier.forward(x.mean([2, 3]))

    def batch(self, rank: int, world_size: int, step: int):
        phase = torch.arange(8 * 3 * 16 * 16) * (0.37 + 0.01 * step)
        images = torch.sin(phase + rank).reshape([8, 3, 16, 16])
        labels = torch.remainder(torch.arange(8) * 3 + rank + step, 10)
        return images, labels

    def loss(self, output, labels):
        return torch.cross_entropy_loss(output, labels)
  )");
  return program;
}

}  // namespace ddp_doctor::examples
