// SPDX-License-Identifier: BSD-3-Clause
// What PyTorch's own tests of its reducer ask for, asked of this wrapper: the cases of ReducerTest
// and of DistributedDataParallelTest on the CPU (test/distributed/test_c10d_gloo.py and
// test_c10d_common.py) that no other test here has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <sstream>
#include <torch/csrc/distributed/c10d/default_comm_hooks.hpp>

#include "tests/torch/ddp_models.h"
#include "tests/torch/ddp_ranks.h"

namespace ddp_doctor::test {
namespace {

using testing::HasSubstr;

// The first layer in double, the others in float; the last one where it is asked for.
struct ThreeLayersImpl : torch::nn::Module {
  ThreeLayersImpl() {
    const auto layer = [](int in, int out) {
      return torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(false));
    };
    first = register_module("first", layer(2, 10));
    second = register_module("second", layer(10, 4));
    third = register_module("third", layer(4, 4));
    first->to(torch::kDouble);
  }
  at::Tensor forward(const at::Tensor& input, bool all) {
    const auto hidden = torch::relu(second(torch::relu(first(input)).to(torch::kFloat)));
    return torch::softmax(all ? third(hidden) : hidden, 1);
  }
  torch::nn::Linear first{nullptr}, second{nullptr}, third{nullptr};
};
TORCH_MODULE(ThreeLayers);

using ThreeLayersParallel = DistributedDataParallel<ThreeLayers>;

at::Tensor loss_of(ThreeLayersParallel& ddp, int seed, bool all = true) {
  // Ranks are threads here, and share the default generator.
  auto generator = at::detail::createCPUGenerator(seed);
  const auto input = torch::rand({10, 2}, generator, torch::kDouble);
  const auto target = torch::randint(4, {10}, generator, torch::kLong);
  return torch::cross_entropy_loss(ddp(input, all), target);
}

TEST(PyTorchCases, OneRankWithTwoDtypesGoesForwardAndBackward) {
  on_ranks(1, [](int, const ProcessGroupPtr& group) {
    ThreeLayersParallel ddp(ThreeLayers(), group);
    loss_of(ddp, 1).backward();
    for (const auto& parameter : ddp.module()->parameters())
      EXPECT_TRUE(parameter.grad().defined());
  });
}

TEST(PyTorchCases, ALayerThatNoRankUsedKeepsNoGradient) {
  on_ranks(1, [](int, const ProcessGroupPtr& group) {
    ThreeLayersParallel ddp(ThreeLayers(), group, {.find_unused_parameters = true});
    loss_of(ddp, 1, /*all=*/false).backward();
    EXPECT_FALSE(ddp.module()->third->weight.grad().defined());
  });
}

TEST(PyTorchCases, AnOptimizerSeesALayerThatIsUnusedOnlyAtFirst) {
  on_ranks(2, [](int rank, const ProcessGroupPtr& group) {
    ThreeLayersParallel ddp(ThreeLayers(), group, {.find_unused_parameters = true});
    torch::optim::Adam optimizer(ddp.module()->parameters());
    const auto before = ddp.module()->third->weight.detach().clone();
    for (int step = 0; step < 3; ++step) {
      for (auto& parameter : ddp.module()->parameters()) {
        if (parameter.grad().defined()) parameter.mutable_grad().zero_();
      }
      loss_of(ddp, rank, /*all=*/step > 0).backward();
      optimizer.step();
      EXPECT_EQ(ddp.module()->third->weight.equal(before), step == 0);
    }
  });
}

TEST(PyTorchCases, OutputsThatNobodyUsesAreNoError) {
  for (const bool find_unused : {false, true}) {
    on_ranks(2, [&](int rank, const ProcessGroupPtr& group) {
      DistributedDataParallel ddp(Scale(), group, {.find_unused_parameters = find_unused});
      for (int i = 0; i < 4; ++i) ddp(input_of(rank));
      for (int step = 1; step <= 4; ++step) {
        ddp.module()->zero_grad();
        ddp(input_of(rank) * step).backward();
        EXPECT_TRUE(ddp.module()->weight.grad().equal(tensor_of({3, 6}) * step));
      }
    });
  }
}

// Six steps in one go; and three, a checkpoint, the weights lost and loaded, three more.
TEST(PyTorchCases, ACheckpointInTheMiddleChangesNoBit) {
  on_ranks(2, [](int rank, const ProcessGroupPtr& group) {
    const auto train = [&](ThreeLayersParallel& ddp, int first, int last) {
      torch::optim::SGD optimizer(ddp.module()->parameters(), 0.1);
      for (int step = first; step <= last; ++step) {
        optimizer.zero_grad();
        loss_of(ddp, 2 * step + rank).backward();
        optimizer.step();
      }
    };
    ThreeLayers model;
    std::stringstream beginning;
    torch::save(model, beginning);
    ThreeLayersParallel whole(model, group);
    train(whole, 1, 6);

    ThreeLayers again;
    torch::load(again, beginning);
    ThreeLayersParallel interrupted(again, group);
    train(interrupted, 1, 3);
    std::stringstream checkpoint;
    torch::save(interrupted.module(), checkpoint);
    {
      at::NoGradGuard no_grad;
      for (auto& parameter : interrupted.module()->parameters()) parameter.zero_();
    }
    torch::load(interrupted.module(), checkpoint);
    train(interrupted, 4, 6);

    const auto expected = whole.module()->parameters();
    const auto seen = interrupted.module()->parameters();
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(seen[i].equal(expected[i])) << i;
  });
}

struct SparseImpl : torch::nn::Module {
  SparseImpl() {
    table = register_module("table",
                            torch::nn::Embedding(torch::nn::EmbeddingOptions(5, 2).sparse(true)));
    torch::nn::init::ones_(table->weight);
  }
  at::Tensor forward(const at::Tensor& rows) { return table(rows).sum(); }
  torch::nn::Embedding table{nullptr};
};
TORCH_MODULE(Sparse);

TEST(PyTorchCases, SparseGradientsAreAveragedAsViewsOfBucketsToo) {
  for (const bool views : {false, true}) {
    on_ranks(2, [&](int rank, const ProcessGroupPtr& group) {
      DistributedDataParallel ddp(Sparse(), group, {.gradient_as_bucket_view = views});
      ddp(torch::tensor({rank, 2}, torch::kLong)).backward();
      const auto gradient = ddp.module()->table->weight.grad().to_dense();
      EXPECT_TRUE(gradient.select(1, 0).equal(tensor_of({0.5, 0.5, 1, 0, 0})));
    });
  }
}

TEST(PyTorchCases, AHookIsRegisteredOnlyOnce) {
  on_ranks(1, [](int, const ProcessGroupPtr& group) {
    DistributedDataParallel ddp(Scale(), group);
    const auto add = [&] {
      ddp.reducer().register_comm_hook(c10d::BuiltinCommHookType::ALLREDUCE);
    };
    add();
    EXPECT_THAT(error_of(add), HasSubstr("can only be called once"));
  });
}

// What torch.utils.checkpoint does, the reentrant way: the forward is run again in the backward.
struct Recomputed : torch::autograd::Function<Recomputed> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            torch::nn::LinearImpl* layer) {
    context->save_for_backward({input});
    context->saved_data["layer"] = reinterpret_cast<std::int64_t>(layer);
    return layer->forward(input);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    auto* layer = reinterpret_cast<torch::nn::LinearImpl*>(context->saved_data["layer"].toInt());
    const auto input = context->get_saved_variables()[0].detach().requires_grad_();
    {
      const at::AutoGradMode on(true);
      torch::autograd::backward({layer->forward(input)}, {gradients[0]});
    }
    return {input.grad(), at::Tensor()};
  }
};

// The second layer is gone through `times` times in one forward, and recomputed each time.
struct CheckpointedImpl : torch::nn::Module {
  explicit CheckpointedImpl(int times) : times(times) {
    first = register_module("first", torch::nn::Linear(2, 2));
    second = register_module("second", torch::nn::Linear(2, 2));
    unused = register_module("unused", torch::nn::Linear(2, 2));
    at::NoGradGuard no_grad;
    for (auto& parameter : parameters()) parameter.fill_(0.5);
  }
  at::Tensor forward(const at::Tensor& input) {
    auto hidden = first(input);
    for (int i = 0; i < times; ++i) hidden = Recomputed::apply(hidden, second.get());
    return hidden.sum();
  }
  int times;
  torch::nn::Linear first{nullptr}, second{nullptr}, unused{nullptr};
};
TORCH_MODULE(Checkpointed);

// The mean over both ranks of what each has without a wrapper.
at::Tensor expected_gradient(int times) {
  Checkpointed model(times);
  for (const int rank : {0, 1}) (model(input_of(rank)) / 2).backward();
  return model->second->weight.grad();
}

TEST(PyTorchCases, AStaticGraphMayBeRecomputedAndHaveUnusedLayers) {
  for (const int times : {1, 2}) {
    const auto expected = expected_gradient(times);
    on_ranks(2, [&](int rank, const ProcessGroupPtr& group) {
      DistributedDataParallel ddp(Checkpointed(times), group, {.static_graph = true});
      for (int step = 0; step < 3; ++step) {
        ddp.module()->zero_grad();
        ddp(input_of(rank)).backward();
        EXPECT_TRUE(ddp.module()->second->weight.grad().allclose(expected)) << times;
        EXPECT_FALSE(ddp.module()->unused->weight.grad().defined());
      }
    });
  }
}

TEST(PyTorchCases, ALayerRecomputedTwiceIsReadyTwice) {
  on_ranks(1, [](int, const ProcessGroupPtr& group) {
    const Checkpointed model(2);
    model->unused->weight.set_requires_grad(false);
    model->unused->bias.set_requires_grad(false);
    DistributedDataParallel ddp(model, group);
    EXPECT_THAT(error_of([&] { ddp(input_of(0)).backward(); }),
                HasSubstr("Expected to mark a variable ready only once."));
  });
}

TEST(PyTorchCases, ARecomputedLayerIsUnusedInTheGraphThatTheSearchSees) {
  on_ranks(1, [](int, const ProcessGroupPtr& group) {
    DistributedDataParallel ddp(Checkpointed(1), group, {.find_unused_parameters = true});
    EXPECT_THAT(error_of([&] { ddp(input_of(0)).backward(); }),
                HasSubstr("Expected to mark a variable ready only once."));
  });
}

}  // namespace
}  // namespace ddp_doctor::test
