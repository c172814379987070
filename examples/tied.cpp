// SPDX-License-Identifier: BSD-3-Clause
// Stands for language models whose embedding and decoder are one tensor under two names. DDP counts
// it once, under the first name, so the parameters after it have smaller indices than their
// position in the model. Healthy under `ddp`.
#include "examples/program_builder.h"
#include "examples/programs.h"

namespace ddp_doctor::examples {

torch::jit::Module tied() {
  constexpr std::int64_t kVocabulary = 128;
  constexpr std::int64_t kFeatures = 32;
  ProgramBuilder builder;
  torch::jit::Module program = builder.module("TiedModel");
  const torch::jit::Module embedding = builder.embedding(kVocabulary, kFeatures);
  torch::jit::Module decoder = builder.module("Decoder");
  decoder.register_parameter("weight", embedding.attr("weight").toTensor(), false);
  decoder.register_parameter("bias", torch::zeros({kVocabulary}).set_requires_grad(true), false);
  decoder.define(R"(
    def forward(self, x):
        return torch.linear(x, self.weight, self.bias)
  )");
  program.register_module("embedding", embedding);
  program.register_module("hidden", builder.linear(kFeatures, kFeatures));
  program.register_module("decoder", decoder);
  program.define(R"(
    def forward(self, tokens):
        hidden = torch.tanh(self.hidden.forward(self.embedding.forward(tokens)))
        return self.decoder.forward(hidden)

    def batch(self, rank: int, world_size: int, step: int):
        i = torch.arange(64)
        tokens = torch.remainder(i * i * 31 + i * step + 17 * rank, 128)
        return tokens, torch.remainder(tokens * 5 + step, 128)

    def loss(self, output, targets):
        return torch.cross_entropy_loss(output, targets)
  )");
  return program;
}

}  // namespace ddp_doctor::examples
