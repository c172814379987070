// SPDX-License-Identifier: BSD-3-Clause
// Parameters without a gradient: by default, with the search for them, and with a static graph.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/debug.h>

#include "tests/torch/ddp_models.h"
#include "tests/torch/ddp_ranks.h"

namespace ddp_doctor::test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kUnfinished =
    "Expected to have finished reduction in the prior iteration before starting a new one. This "
    "error indicates that your module has parameters that were not used in producing loss. ";

// Debug levels are read when a reducer is made.
class DebugLevel {
 public:
  explicit DebugLevel(c10d::DebugLevel level) {
    initialize_c10d();
    before_ = c10d::debug_level();
    c10d::setDebugLevel(level);
  }
  ~DebugLevel() { c10d::setDebugLevel(before_); }

 private:
  c10d::DebugLevel before_;
};

// One step that leaves b unused, then another forward.
std::string error_of_second_forward(int rank, const ProcessGroupPtr& group) {
  DistributedDataParallel ddp(Branches(), group);
  ddp(input_of(rank), "ac").backward();
  // The bucket was never sent: these are this rank's own gradients.
  EXPECT_TRUE(ddp.module()->a->weight.grad().equal(input_of(rank)));
  EXPECT_FALSE(ddp.module()->b->weight.grad().defined());
  const std::string error = error_of([&] { ddp(input_of(rank), "abc"); });
  EXPECT_EQ(ddp.reducer().logging_data().ints_map["has_error"], 1);
  return error;
}

TEST(UnusedParameters, LeaveLocalGradientsAndStopTheSecondForward) {
  const DebugLevel off(c10d::DebugLevel::Off);
  on_ranks(2, [](int rank, const ProcessGroupPtr& group) {
    const std::string error = error_of_second_forward(rank, group);
    EXPECT_THAT(error, StartsWith(kUnfinished));
    EXPECT_THAT(error, HasSubstr("`find_unused_parameters=True`"));
    EXPECT_THAT(error, HasSubstr("Parameter indices which did not receive grad for rank " +
                                 std::to_string(rank) +
                                 ": 1\n In addition, you can set the environment "
                                 "variable TORCH_DISTRIBUTED_DEBUG"));
  });
}

TEST(UnusedParameters, AreNamedWhereDebuggingIsOn) {
  const DebugLevel info(c10d::DebugLevel::Info);
  on_ranks(2, [](int rank, const ProcessGroupPtr& group) {
    const std::string error = error_of_second_forward(rank, group);
    const std::string who = std::to_string(rank);
    EXPECT_THAT(error, StartsWith(kUnfinished));
    EXPECT_THAT(error, HasSubstr("Parameters which did not receive grad for rank " + who +
                                 ": b.weight\nParameter indices which did not receive grad for "
                                 "rank " +
                                 who + ": 1"));
  });
}

struct Mode {
  const char* name;
  DistributedDataParallelOptions options;
};

class UnusedParametersHandled : public testing::TestWithParam<Mode> {};

TEST_P(UnusedParametersHandled, TheOthersAreAveragedStepAfterStep) {
  on_ranks(2, [](int rank, const ProcessGroupPtr& group) {
    DistributedDataParallel ddp(Branches(), group, GetParam().options);
    for (int step = 1; step <= 4; ++step) {
      for (at::Tensor& parameter : ddp.module()->parameters()) parameter.mutable_grad().reset();
      ddp(input_of(rank) * step, "ac").backward();
      EXPECT_TRUE(ddp.module()->a->weight.grad().equal(tensor_of({3, 6}) * step)) << step;
      EXPECT_TRUE(ddp.module()->c->weight.grad().equal(tensor_of({3, 6}) * step)) << step;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Modes, UnusedParametersHandled,
    testing::Values(Mode{"FindUnused", {.find_unused_parameters = true}},
                    Mode{"StaticGraph", {.static_graph = true}},
                    Mode{"Both", {.find_unused_parameters = true, .static_graph = true}}),
    [](const auto& info) { return info.param.name; });

TEST(FindUnusedParameters, ARankThatDoesNotUseOneContributesZero) {
  on_ranks(2, [](int rank, const ProcessGroupPtr& group) {
    DistributedDataParallel ddp(Branches(), group, {.find_unused_parameters = true});
    ddp(input_of(rank), rank == 0 ? "a" : "ab").backward();
    EXPECT_TRUE(ddp.module()->a->weight.grad().equal(tensor_of({3, 6})));
    EXPECT_TRUE(ddp.module()->b->weight.grad().equal(tensor_of({2, 4})));
    EXPECT_FALSE(ddp.module()->c->weight.grad().defined());
  });
}

TEST(FindUnusedParameters, AnOutputThatTheLossDoesNotUseIsNoError) {
  on_ranks(2, [](int rank, const ProcessGroupPtr& group) {
    DistributedDataParallel ddp(TwoHeads(), group, {.find_unused_parameters = true});
    for (int step = 1; step <= 3; ++step) {
      ddp.module()->zero_grad();
      auto [loss, others] = ddp(input_of(rank) * step);
      ASSERT_EQ(others.size(), 1U);
      loss.backward();
      EXPECT_TRUE(ddp.module()->left.grad().equal(tensor_of({3, 6}) * step));
      EXPECT_TRUE(ddp.module()->trunk.grad().equal(tensor_of({3, 6}) * step));
      EXPECT_FALSE(ddp.module()->right.grad().defined());
    }
  });
}

TEST(FindUnusedParameters, WithoutItAnUnusedOutputStopsTheSecondForward) {
  on_ranks(2, [](int rank, const ProcessGroupPtr& group) {
    DistributedDataParallel ddp(TwoHeads(), group);
    std::get<0>(ddp(input_of(rank))).backward();
    EXPECT_THAT(error_of([&] { ddp(input_of(rank)); }), StartsWith(kUnfinished));
  });
}

TEST(StaticGraph, AGraphThatChangesIsReported) {
  on_ranks(2, [](int rank, const ProcessGroupPtr& group) {
    DistributedDataParallel ddp(Branches(), group, {.static_graph = true});
    ddp(input_of(rank), "abc").backward();
    ddp(input_of(rank), "ab").backward();
    EXPECT_THAT(error_of([&] { ddp(input_of(rank), "ab"); }),
                HasSubstr("your training graph has changed in this iteration"));
  });
}

}  // namespace
}  // namespace ddp_doctor::test
