// SPDX-License-Identifier: BSD-3-Clause
// What a backward through the wrapper leaves in .grad.
#include <gtest/gtest.h>

#include "tests/torch/ddp_models.h"
#include "tests/torch/ddp_ranks.h"

namespace ddp_doctor::test {
namespace {

// Rank 0 brings (2, 4), rank 1 (4, 8), and so on.
TEST(Synchronization, GradientsAreTheExactMeanOverRanks) {
  on_ranks(2, [](int rank, const ProcessGroupPtr& group) {
    DistributedDataParallel ddp(Scale(), group);
    for (int step = 1; step <= 3; ++step) {
      ddp.module()->zero_grad();
      ddp(input_of(rank) * step).backward();
      EXPECT_TRUE(ddp.module()->weight.grad().equal(tensor_of({3, 6}) * step));
    }
  });
}

TEST(Synchronization, GradientsAsBucketViewsAreTheSame) {
  on_ranks(2, [](int rank, const ProcessGroupPtr& group) {
    DistributedDataParallel ddp(Scale(), group, {.gradient_as_bucket_view = true});
    for (int step = 1; step <= 3; ++step) {
      if (step > 1) ddp.module()->weight.grad().zero_();
      ddp(input_of(rank) * step).backward();
      EXPECT_TRUE(ddp.module()->weight.grad().equal(tensor_of({3, 6}) * step));
    }
  });
}

TEST(Synchronization, OneRankAloneKeepsItsGradients) {
  on_ranks(1, [](int rank, const ProcessGroupPtr& group) {
    DistributedDataParallel ddp(std::make_shared<ScaleImpl>(), group);
    ddp(input_of(rank)).backward();
    EXPECT_TRUE(ddp.module()->weight.grad().equal(tensor_of({2, 4})));
  });
}

TEST(Synchronization, AroundTheWrapperNothingIsAveraged) {
  on_ranks(2, [](int rank, const ProcessGroupPtr& group) {
    DistributedDataParallel ddp(Scale(), group);
    ddp.module()->forward(input_of(rank)).backward();
    EXPECT_TRUE(ddp.module()->weight.grad().equal(input_of(rank)));
  });
}

TEST(Synchronization, AnyFunctionCanStandForTheForward) {
  on_ranks(2, [](int rank, const ProcessGroupPtr& group) {
    DistributedDataParallel ddp(Scale(), group);
    const auto [loss, note] = ddp.run([&] {
      return std::pair(ddp.module()->forward(input_of(rank)) * 2, std::string("a note"));
    });
    loss.backward();
    EXPECT_EQ(note, "a note");
    EXPECT_TRUE(ddp.module()->weight.grad().equal(tensor_of({6, 12})));
  });
}

TEST(Synchronization, TwoWrappersInOneProgramDoNotMix) {
  on_ranks(2, [](int rank, const ProcessGroupPtr& group) {
    DistributedDataParallel generator(Scale(), group);
    DistributedDataParallel critic(Scale(), group);
    for (int step = 1; step <= 3; ++step) {
      generator.module()->zero_grad();
      critic.module()->zero_grad();
      (generator(input_of(rank)) + critic(input_of(rank) * 2)).backward();
      EXPECT_TRUE(generator.module()->weight.grad().equal(tensor_of({3, 6})));
      EXPECT_TRUE(critic.module()->weight.grad().equal(tensor_of({6, 12})));
    }
  });
}

TEST(NoSyncScope, AccumulatesLocallyAndTheNextBackwardAveragesTheSum) {
  on_ranks(2, [](int rank, const ProcessGroupPtr& group) {
    DistributedDataParallel ddp(Scale(), group);
    const at::Tensor& weight = ddp.module()->weight;
    {
      const NoSync no_sync = ddp.no_sync();
      ddp(input_of(rank)).backward();
      ddp(input_of(rank)).backward();
      EXPECT_TRUE(weight.grad().equal(input_of(rank) * 2));
    }
    EXPECT_TRUE(ddp.reducer().require_backward_grad_sync());
    ddp(input_of(rank)).backward();
    EXPECT_TRUE(weight.grad().equal(tensor_of({9, 18})));
  });
}

TEST(NoSyncScope, TheForwardDecidesNotTheBackward) {
  on_ranks(2, [](int rank, const ProcessGroupPtr& group) {
    DistributedDataParallel ddp(Scale(), group);
    at::Tensor loss = ddp(input_of(rank));
    const NoSync no_sync = ddp.no_sync();
    loss.backward();
    EXPECT_TRUE(ddp.module()->weight.grad().equal(tensor_of({3, 6})));
  });
}

TEST(Evaluation, UnderNoGradTheWrapperOnlyForwards) {
  on_ranks(2, [](int rank, const ProcessGroupPtr& group) {
    DistributedDataParallel ddp(Scale(), group, {.find_unused_parameters = true});
    const at::NoGradGuard no_grad;
    EXPECT_EQ(ddp(input_of(rank)).item<float>(), 6.F * (rank + 1));
    EXPECT_EQ(ddp(input_of(rank)).item<float>(), 6.F * (rank + 1));
  });
}

}  // namespace
}  // namespace ddp_doctor::test
