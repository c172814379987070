// SPDX-License-Identifier: BSD-3-Clause
// Ranks whose data end at different times, and hooks in place of the all-reduce.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <torch/csrc/distributed/c10d/default_comm_hooks.hpp>

#include "tests/torch/ddp_models.h"
#include "tests/torch/ddp_ranks.h"

namespace ddp_doctor::test {
namespace {

// Rank 0 has two batches, rank 1 four.
std::vector<at::Tensor> train(int rank, const ProcessGroupPtr& group, const JoinOptions& join,
                              const DistributedDataParallelOptions& options = {}) {
  DistributedDataParallel ddp(Scale(), group, options);
  std::vector<at::Tensor> gradients;
  ddp.join(
      [&] {
        for (int batch = 0; batch < 2 * (rank + 1); ++batch) {
          ddp.module()->zero_grad();
          ddp(input_of(rank)).backward();
          gradients.push_back(ddp.module()->weight.grad().clone());
          at::NoGradGuard no_grad;
          ddp.module()->weight -= ddp.module()->weight.grad();
        }
      },
      join);
  gradients.push_back(ddp.module()->weight.detach().clone());
  return gradients;
}

TEST(Join, ARankWithoutDataContributesZerosUntilTheOthersAreDone) {
  on_ranks(2, [](int rank, const ProcessGroupPtr& group) {
    const auto seen = train(rank, group, {});
    ASSERT_EQ(seen.size(), rank == 0 ? 3U : 5U);
    EXPECT_TRUE(seen[1].equal(tensor_of({3, 6})));
    if (rank == 1) {
      EXPECT_TRUE(seen[3].equal(tensor_of({2, 4})));
    }
    EXPECT_TRUE(seen.back().equal(tensor_of({1 - 3 - 3 - 2 - 2, 1 - 6 - 6 - 4 - 4})));
  });
}

TEST(Join, DividesByTheRanksThatStillTrainWhereToldTo) {
  on_ranks(2, [](int rank, const ProcessGroupPtr& group) {
    const auto seen = train(rank, group, {.divide_by_initial_world_size = false});
    if (rank == 1) {
      EXPECT_TRUE(seen[3].equal(tensor_of({4, 8})));
    }
    EXPECT_TRUE(seen.back().equal(tensor_of({1 - 3 - 3 - 4 - 4, 1 - 6 - 6 - 8 - 8})));
  });
}

TEST(Join, WorksWithTheSearchForUnusedParameters) {
  on_ranks(3, [](int rank, const ProcessGroupPtr& group) {
    const auto seen = train(rank, group, {}, {.find_unused_parameters = true});
    EXPECT_TRUE(seen[0].equal(tensor_of({4, 8})));
    if (rank == 2) {
      EXPECT_TRUE(seen[5].equal(tensor_of({2, 4})));
    }
  });
}

TEST(Join, EndsAllRanksTogetherWhereToldTo) {
  on_ranks(2, [](int rank, const ProcessGroupPtr& group) {
    const std::string error =
        error_of([&] { train(rank, group, {.throw_on_early_termination = true}); });
    EXPECT_EQ(error.substr(0, error.find(" Throwing")),
              rank == 0 ? "Rank 0 exhausted all inputs."
                        : "Detected at least one rank that exhausted inputs.");
  });
}

TEST(Join, LetsAnExceptionOfTheLoopThroughAndWaitsForNobody) {
  on_ranks(2, [](int, const ProcessGroupPtr& group) {
    DistributedDataParallel ddp(Scale(), group);
    EXPECT_THROW(ddp.join([] { throw std::logic_error("the data is damaged"); }), std::logic_error);
  });
}

TEST(CommunicationHook, BuiltInCompressionGoesThroughTheWrapper) {
  on_ranks(2, [](int rank, const ProcessGroupPtr& group) {
    DistributedDataParallel ddp(Scale(), group);
    ddp.reducer().register_comm_hook(c10d::BuiltinCommHookType::FP16_COMPRESS);
    const float fine = 0.1F;  // no half
    ddp(tensor_of({fine, 4.F}) * (rank + 1)).backward();
    EXPECT_TRUE(ddp.module()->weight.grad().allclose(tensor_of({0.15F, 6.F}), 1e-3, 1e-3));
    EXPECT_FALSE(ddp.module()->weight.grad().equal(tensor_of({1.5F * fine, 6.F})));
    EXPECT_EQ(ddp.reducer().logging_data().strs_map.at("comm_hook"),
              "BuiltinCommHookType.FP16_COMPRESS");
  });
}

TEST(CommunicationHook, OneOfTheUsersOwnGetsEveryBucket) {
  struct Count : c10d::CommHookInterface {
    explicit Count(int& buckets) : buckets_(buckets) {}
    c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
      ++buckets_;
      auto future = c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get());
      future->markCompleted(c10::IValue(bucket.getBufferRef() * 10));
      return future;
    }
    at::Tensor parseHookResult(const c10::IValue& result) override { return result.toTensor(); }
    int& buckets_;
  };
  on_ranks(2, [](int rank, const ProcessGroupPtr& group) {
    int buckets = 0;
    DistributedDataParallel ddp(Scale(), group);
    ddp.reducer().register_comm_hook(std::make_unique<Count>(buckets), "count");
    ddp(input_of(rank)).backward();
    EXPECT_EQ(buckets, 1);
    EXPECT_TRUE(ddp.module()->weight.grad().equal(input_of(rank) * 10));
  });
}

}  // namespace
}  // namespace ddp_doctor::test
