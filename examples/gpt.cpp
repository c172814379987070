// SPDX-License-Identifier: BSD-3-Clause
// Stands for language models: a decoder-only transformer of about 10 million parameters, large
// enough for several gradient buckets and for meaningful times. Healthy under `ddp`.
#include <string>

#include "examples/program_builder.h"
#include "examples/programs.h"

namespace ddp_doctor::examples {
namespace {

constexpr std::int64_t kVocabulary = 4096;
constexpr std::int64_t kContext = 16;
constexpr std::int64_t kFeatures = 320;
constexpr int kBlocks = 6;

// Pre-norm block. The non-linearity is ReLU, not GELU: GELU's gradient is wrong in Debian 12's
// torch 1.13.1 when the incoming gradient is not contiguous.
torch::jit::Module make_block(ProgramBuilder& builder, bool first) {
  torch::jit::Module block = builder.module("Block");
  block.register_module("norm1", builder.layer_norm(kFeatures));
  block.register_module("query_key_value", builder.linear(kFeatures, 3 * kFeatures));
  block.register_module("projection", builder.linear(kFeatures, kFeatures));
  block.register_module("norm2", builder.layer_norm(kFeatures));
  block.register_module("expand", builder.linear(kFeatures, 4 * kFeatures));
  block.register_module("contract", builder.linear(4 * kFeatures, kFeatures));
  if (!first) return block;  // the class has its methods already
  block.define(R"(
    def attention(self, x):
        samples, length, features = x.size(0), x.size(1), x.size(2)
        qkv = self.query_key_value.forward(x).reshape([samples, length, 3, 4, features // 4])
        qkv = qkv.permute([2, 0, 3, 1, 4])
        scores = torch.matmul(qkv[0], qkv[1].transpose(-2, -1)) * (features // 4) ** -0.5
        future = torch.triu(torch.ones_like(scores), 1) > 0
        weights = torch.softmax(scores.masked_fill(future, -1e9), -1)
        mixed = torch.matmul(weights, qkv[2]).transpose(1, 2)
        return self.projection.forward(mixed.reshape([samples, length, features]))

    def forward(self, x):
        x = x + self.attention(self.norm1.forward(x))
        hidden = torch.relu(self.expand.forward(self.norm2.forward(x)))
        return x + self.contract.forward(hidden)
  )");
  return block;
}

}  // namespace

torch::jit::Module gpt() {
  ProgramBuilder builder;
  torch::jit::Module program = builder.module("Gpt");
  program.register_module("tokens", builder.embedding(kVocabulary, kFeatures));
  program.register_module("positions", builder.embedding(kContext, kFeatures));
  torch::jit::Module blocks = builder.module("Blocks");
  std::string forward_of_blocks = "def forward(self, x):\n";
  for (int i = 0; i < kBlocks; ++i) {
    const std::string index = std::to_string(i);
    blocks.register_module(index, make_block(builder, i == 0));
    forward_of_blocks += "    x = getattr(self, \"" + index + "\").forward(x)\n";
  }
  blocks.define(forward_of_blocks + "    return x\n");
  program.register_module("blocks", blocks);
  program.register_module("norm", builder.layer_norm(kFeatures));
  program.register_module("head", builder.linear(kFeatures, kVocabulary));
  program.define(R"(
    def forward(self, tokens):
        x = self.tokens.forward(tokens) + self.positions.weight[:tokens.size(1)]
        return self.head.forward(self.norm.forward(self.blocks.forward(x)))

    def batch(self, rank: int, world_size: int, step: int):
        i = torch.arange(17)
        text = torch.remainder(i * i * 7919 + i * (131 * step) + 1009 * rank + step, 4096)
        text = text.reshape([1, 17])
        return text[:, :-1], text[:, 1:]

    def loss(self, output, targets):
        return torch.cross_entropy_loss(output.flatten(0, 1), targets.reshape([-1]))
  )");
  return program;
}

}  // namespace ddp_doctor::examples
