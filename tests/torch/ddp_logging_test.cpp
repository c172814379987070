// SPDX-License-Identifier: BSD-3-Clause
// The DDP logging data: what TORCH_DISTRIBUTED_DEBUG=INFO prints about a wrapper.
#include <gtest/gtest.h>

#include "tests/torch/ddp_models.h"
#include "tests/torch/ddp_ranks.h"

namespace ddp_doctor::test {
namespace {

TEST(LoggingData, TellsWhatTheWrapperWasMadeOf) {
  on_ranks(2, [](int rank, const ProcessGroupPtr& group) {
    DistributedDataParallel ddp(Branches(), group, {.broadcast_buffers = false});
    auto data = ddp.reducer().logging_data();
    EXPECT_EQ(data.ints_map["rank"], rank);
    EXPECT_EQ(data.ints_map["world_size"], 2);
    EXPECT_EQ(data.ints_map["num_parameter_tensors"], 3);
    EXPECT_EQ(data.ints_map["total_parameter_size_bytes"], 24);
    EXPECT_EQ(data.ints_map["bucket_cap_bytes"], 25 * 1024 * 1024);
    EXPECT_EQ(data.ints_map["broadcast_buffers"], 0);
    EXPECT_EQ(data.ints_map["find_unused_parameters"], 0);
    EXPECT_EQ(data.strs_map["module_name"], "BranchesImpl");
    EXPECT_EQ(data.strs_map["backend_name"], "gloo");
    EXPECT_EQ(data.strs_map["dtypes"], "float");
    EXPECT_EQ(data.strs_map["bucket_sizes"], "24");
  });
}

TEST(LoggingData, ShowsTheBucketsRebuiltInTheOrderOfGradients) {
  on_ranks(2, [](int rank, const ProcessGroupPtr& group) {
    DistributedDataParallel ddp(Branches(), group);
    for (int step = 1; step <= 2; ++step) ddp(input_of(rank), "abc").backward();
    ddp.reducer().before_forward();  // notes the iteration before
    auto data = ddp.reducer().logging_data();
    EXPECT_EQ(data.ints_map["has_rebuilt_buckets"], 1);
    EXPECT_EQ(data.strs_map["rebuilt_bucket_sizes"], "24");
    EXPECT_EQ(data.strs_map["rebuilt_per_bucket_param_indices"], "2 1 0");
  });
}

TEST(LoggingData, WithTheSearchForUnusedBucketsHaveTheGivenSize) {
  on_ranks(1, [](int, const ProcessGroupPtr& group) {
    // Three parameters of 1 MiB each, and a limit of 2 MiB: 2 + 1, the last ones first.
    torch::nn::Sequential model;
    for (int i = 0; i < 3; ++i) {
      model->push_back(torch::nn::Linear(torch::nn::LinearOptions(512, 512).bias(false)));
    }
    DistributedDataParallel ddp(model, group, {.find_unused_parameters = true, .bucket_cap_mb = 2});
    auto data = ddp.reducer().logging_data();
    EXPECT_EQ(data.ints_map["bucket_cap_bytes"], 2 * 1024 * 1024);
    EXPECT_EQ(data.strs_map["bucket_sizes"],
              kGivenCapBoundsFirstBucket ? "1048576, 2097152" : "2097152, 1048576");
  });
}

TEST(LoggingData, UnusedBytesDoNotGrowFromStepToStep) {
  on_ranks(2, [](int rank, const ProcessGroupPtr& group) {
    DistributedDataParallel ddp(Branches(), group, {.find_unused_parameters = true});
    for (int step = 1; step <= 4; ++step) {
      ddp(input_of(rank), "ac").backward();
      if (step > 1) {
        EXPECT_EQ(ddp.reducer().logging_data().ints_map["unused_parameter_size"], 8);
      }
    }
    ddp(input_of(rank), "a").backward();
    ddp(input_of(rank), "abc").backward();
    EXPECT_EQ(ddp.reducer().logging_data().ints_map["unused_parameter_size"], 16);
  });
}

}  // namespace
}  // namespace ddp_doctor::test
