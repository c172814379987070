// SPDX-License-Identifier: BSD-3-Clause
// Which parameters and buffers a wrapper takes, and what it sends before training.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/torch/ddp_models.h"
#include "tests/torch/ddp_ranks.h"

namespace ddp_doctor::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A module of whatever is registered on it; its forward is the sum of everything.
struct BagImpl : torch::nn::Module {
  using torch::nn::Module::register_buffer;
  using torch::nn::Module::register_module;
  using torch::nn::Module::register_parameter;
  at::Tensor forward() {
    at::Tensor sum = torch::zeros({});
    for (const at::Tensor& parameter : parameters()) sum = sum + parameter.sum();
    for (const at::Tensor& buffer : buffers()) sum = sum + buffer.sum();
    return sum;
  }
};
TORCH_MODULE(Bag);

TEST(Parameters, ComeInThePreorderOfModulesAndOwnOnesFirst) {
  Bag root, child, grandchild;
  grandchild->register_parameter("w", torch::ones({1}));
  child->register_module("inner", grandchild);
  child->register_parameter("w", torch::ones({1}));
  root->register_module("child", child);
  root->register_parameter("w", torch::ones({1}));
  root->register_parameter("absent", at::Tensor(), /*requires_grad=*/false);
  EXPECT_THAT(describe(*root).names, ElementsAre("w", "child.w", "child.inner.w"));
}

TEST(Parameters, TiedOnesCountOnceUnderTheFirstName) {
  Bag root, first, second;
  const at::Tensor weight = first->register_parameter("weight", torch::ones({1}));
  root->register_module("encoder", first);
  second->register_parameter("weight", weight);
  second->register_parameter("bias", torch::ones({1}));
  root->register_module("decoder", second);
  const ModuleState state = describe(*root);
  EXPECT_THAT(state.names, ElementsAre("encoder.weight", "decoder.bias"));
  EXPECT_EQ(state.all_parameters.size(), 2U);
}

TEST(Parameters, OfSparseEmbeddingsAreExpectedToHaveSparseGradients) {
  torch::nn::Sequential model(
      torch::nn::Linear(1, 1), torch::nn::Embedding(torch::nn::EmbeddingOptions(3, 2).sparse(true)),
      torch::nn::Embedding(3, 2),
      torch::nn::EmbeddingBag(torch::nn::EmbeddingBagOptions(3, 2).sparse(true)));
  EXPECT_THAT(describe(*model).expect_sparse, ElementsAre(false, false, true, false, true));
}

TEST(Parameters, SparseGradientsAreAveraged) {
  on_ranks(2, [](int rank, const ProcessGroupPtr& group) {
    DistributedDataParallel ddp(
        torch::nn::Embedding(torch::nn::EmbeddingOptions(3, 1).sparse(true)), group);
    ddp(torch::tensor(rank)).sum().backward();
    EXPECT_TRUE(ddp.module()->weight.grad().to_dense().flatten().equal(tensor_of({.5, .5, 0})));
  });
}

TEST(Parameters, TypeNameHasNoNamespaces) {
  EXPECT_EQ(describe(*Bag()).type_name, "BagImpl");
  EXPECT_EQ(describe(*torch::nn::Linear(1, 1)).type_name, "LinearImpl");
}

TEST(FirstBroadcast, MakesAllRanksEqualToRankZeroFrozenParametersToo) {
  on_ranks(2, [](int rank, const ProcessGroupPtr& group) {
    Bag module;
    module->register_parameter("weight", torch::full({2}, rank + 1.F));
    module->register_parameter("frozen", torch::full({2}, rank + 3.F), /*requires_grad=*/false);
    module->register_buffer("count", torch::full({1}, rank + 5));
    DistributedDataParallel ddp(module, group);
    EXPECT_TRUE(module->named_parameters()["weight"].equal(tensor_of({1, 1})));
    EXPECT_TRUE(module->named_parameters()["frozen"].equal(tensor_of({3, 3})));
    EXPECT_EQ(module->named_buffers()["count"].item<int>(), 5);
    EXPECT_THAT(ddp.reducer().module().names, ElementsAre("weight"));
    EXPECT_EQ(ddp.reducer().logging_data().ints_map["num_parameter_tensors"], 1);
  });
}

TEST(FirstBroadcast, LeavesBuffersAloneWherePythonDoes) {
  on_ranks(2, [](int rank, const ProcessGroupPtr& group) {
    Bag module;
    module->register_parameter("weight", torch::ones({2}));
    module->register_buffer("count", torch::full({1}, rank + 5));
    DistributedDataParallel ddp(module, group, {.broadcast_buffers = false});
    EXPECT_EQ(module->named_buffers()["count"].item<int>(),
              kFirstBroadcastAlwaysSendsBuffers ? 5 : rank + 5);
  });
}

// What each rank's buffer holds after a forward, having been set to its rank before.
int buffer_after_forward(int rank, const ProcessGroupPtr& group, bool broadcast) {
  Bag module;
  module->register_parameter("weight", torch::ones({2}));
  const at::Tensor count = module->register_buffer("count", torch::zeros({1}));
  DistributedDataParallel ddp(module, group, {.broadcast_buffers = broadcast});
  ddp().backward();
  count.fill_(rank + 7);
  ddp().backward();
  return count.item<int>();
}

TEST(Buffers, FollowRankZeroAtEachForward) {
  on_ranks(2, [](int rank, const ProcessGroupPtr& group) {
    EXPECT_EQ(buffer_after_forward(rank, group, /*broadcast=*/true), 7);
  });
}

TEST(Buffers, StayLocalWithoutBroadcast) {
  on_ranks(2, [](int rank, const ProcessGroupPtr& group) {
    EXPECT_EQ(buffer_after_forward(rank, group, /*broadcast=*/false), rank + 7);
  });
}

TEST(Buffers, AreNotSentAfterAForwardThatDidNotSynchronize) {
  on_ranks(2, [](int rank, const ProcessGroupPtr& group) {
    Bag module;
    module->register_parameter("weight", torch::ones({2}));
    const at::Tensor count = module->register_buffer("count", torch::zeros({1}));
    DistributedDataParallel ddp(module, group);
    const NoSync no_sync = ddp.no_sync();
    ddp().backward();
    count.fill_(rank + 7);
    ddp().backward();
    EXPECT_EQ(count.item<int>(), rank + 7);
  });
}

TEST(Buffers, OfOneForwardMayBeNeededAfterTheNext) {
  on_ranks(2, [](int rank, const ProcessGroupPtr& group) {
    Bag module;
    const at::Tensor weight = module->register_parameter("weight", torch::ones({1}));
    const at::Tensor factor = module->register_buffer("factor", torch::full({1}, 2.F));
    DistributedDataParallel ddp(module, group);
    const at::Tensor first = ddp.run([&] { return weight * factor * (rank + 1); });
    const at::Tensor second = ddp.run([&] { return weight * factor * (rank + 1); });
    const std::string error = error_of([&] { (first + second).backward(); });
    if (kBufferBroadcastKeepsVersions) {
      EXPECT_THAT(error, IsEmpty());
      EXPECT_EQ(weight.grad().item<float>(), 6.F);
    } else {
      EXPECT_THAT(error, HasSubstr("modified by an inplace operation"));
    }
  });
}

TEST(Replicas, ThatDifferInCountAreRefused) {
  on_ranks(2, [](int rank, const ProcessGroupPtr& group) {
    Bag module;
    for (int i = 0; i <= rank; ++i) {
      module->register_parameter("weight" + std::to_string(i), torch::ones({2}));
    }
    EXPECT_THAT(error_of([&] { DistributedDataParallel(module, group); }),
                HasSubstr("DDP expects same model across all ranks, but Rank " +
                          std::to_string(rank) + " has " + std::to_string(rank + 1) +
                          " params, while rank " + std::to_string(1 - rank) + " has inconsistent " +
                          std::to_string(2 - rank) + " params."));
  });
}

TEST(Replicas, ThatDifferInShapeAreRefused) {
  on_ranks(2, [](int rank, const ProcessGroupPtr& group) {
    Bag module;
    module->register_parameter("weight", torch::ones({2 + rank}));
    if (rank == 0) {
      // It cannot know, goes on to the first broadcast, and may lose the other rank there.
      try {
        DistributedDataParallel ddp(module, group);
      } catch (const std::exception&) {
      }
      return;
    }
    EXPECT_THAT(error_of([&] { DistributedDataParallel(module, group); }),
                HasSubstr("params[0] in this process with sizes [3] appears not to match sizes of "
                          "the same param in process 0."));
  });
}

TEST(Replicas, WithNothingToTrainAreRefused) {
  on_ranks(1, [](int, const ProcessGroupPtr& group) {
    Bag module;
    module->register_parameter("frozen", torch::ones({2}), /*requires_grad=*/false);
    EXPECT_THAT(error_of([&] { DistributedDataParallel(module, group); }),
                HasSubstr("DistributedDataParallel is not needed when a module doesn't have any "
                          "parameter that requires a gradient."));
  });
}

}  // namespace
}  // namespace ddp_doctor::test
