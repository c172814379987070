// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "probes/libtorch/parity/kept_step.h"
#include "probes/libtorch/parity/samples.h"
#include "tests/temporary_folder.h"

namespace ddp_doctor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::UnorderedElementsAre;

at::Tensor rows(std::int64_t count, std::int64_t width, double from) {
  return torch::arange(count * width).reshape({count, width}).to(torch::kDouble) + from;
}

std::string why_not(const std::vector<Samples>& ranks) {
  try {
    join(ranks);
  } catch (const Impossible& reason) {
    return reason.what();
  }
  return "";
}

TEST(ParitySamples, AreJoinedRankByRank) {
  const at::Tensor mask = torch::eye(5);
  const Samples joined =
      join({{rows(2, 3, 0), rows(2, 1, 5), mask, 7}, {rows(1, 3, 50), rows(1, 1, 9), mask, 7}});
  EXPECT_TRUE(joined[0].toTensor().equal(torch::cat({rows(2, 3, 0), rows(1, 3, 50)})));
  EXPECT_TRUE(joined[1].toTensor().equal(torch::cat({rows(2, 1, 5), rows(1, 1, 9)})));
  EXPECT_TRUE(joined[2].toTensor().equal(mask));
  EXPECT_EQ(joined[3].toInt(), 7);
}

TEST(ParitySamples, AreFoundInTuplesListsAndDictionaries) {
  const auto batch = [](double from) {
    c10::Dict<std::string, at::Tensor> named;
    named.insert("x", rows(2, 2, from));
    return Samples{c10::ivalue::Tuple::create({c10::IValue(rows(2, 3, from))}),
                   c10::List<at::Tensor>({rows(2, 1, from)}), named};
  };
  const Samples joined = reversed(join({batch(0), batch(10)}));
  EXPECT_EQ(count_samples(joined), 4);
  EXPECT_TRUE(joined[0].toTupleRef().elements()[0].toTensor()[0].equal(rows(2, 3, 10)[1]));
  EXPECT_TRUE(joined[1].toTensorVector()[0][3].equal(rows(2, 1, 0)[0]));
  EXPECT_TRUE(joined[2].toGenericDict().at("x").toTensor()[0].equal(rows(2, 2, 10)[1]));
}

TEST(ParitySamples, SayWhyTheyCannotBeJoined) {
  EXPECT_THAT(why_not({{rows(2, 3, 0)}, {rows(2, 4, 0)}}), HasSubstr("[2, 3] and [2, 4]"));
  EXPECT_THAT(why_not({{rows(2, 3, 0), torch::tensor(1.0)}, {rows(2, 3, 0), torch::tensor(2.0)}}),
              HasSubstr("does not count the samples"));
  EXPECT_THAT(why_not({{rows(2, 3, 0), true}, {rows(2, 3, 0), false}}), HasSubstr("is no tensor"));
  EXPECT_THAT(why_not({{rows(2, 3, 0)}, {rows(2, 3, 0), 1}}), HasSubstr("different numbers"));
}

TEST(ParitySamples, LeaveTheProgramWhatIsNoSample) {
  const Samples own = {rows(2, 3, 0).to(torch::kFloat), 1, torch::tensor(0.5)};
  const Samples taken = put_into(own, {rows(4, 3, 20).to(torch::kFloat), 2, torch::tensor(0.25)});
  EXPECT_EQ(taken[0].toTensor().size(0), 4);
  EXPECT_EQ(taken[1].toInt(), 1);
  EXPECT_EQ(taken[2].toTensor().item<double>(), 0.5);
}

TEST(ParitySamples, AreCountedByWhatALossMayIgnore) {
  const at::Tensor labels = torch::tensor({{-100, 1, 2}, {-100, -100, 0}});
  EXPECT_THAT(counts_of({rows(2, 3, 0.5), labels}),
              UnorderedElementsAre(Pair("samples", 2), Pair("batch[1] that are not -100", 3),
                                   Pair("batch[1] but the first that are not -100", 3),
                                   Pair("batch[1] that are not 0", 5)));
}

TEST(KeptStep, IsReadAsItWasWritten) {
  const TemporaryFolder folder;
  const auto file = kept_step_file(folder.path(), 1, 12);
  KeptStep kept;
  kept.micro_batches = {{rows(2, 3, 0), "text", true}, {rows(1, 3, 1), "text", false}};
  kept.losses = {0.5, 1.5};
  kept.drew_random = true;
  kept.names = {"weight", "mean"};
  kept.tensors = {rows(2, 2, 0), rows(1, 1, 3)};
  kept.parameters = {"weight", "unused"};
  kept.gradients = {rows(2, 2, 7), std::nullopt};
  write_bytes(file, to_bytes(kept));
  const KeptStep read = read_kept_step(file);
  ASSERT_EQ(read.micro_batches.size(), 2u);
  EXPECT_TRUE(read.micro_batches[1][0].toTensor().equal(rows(1, 3, 1)));
  EXPECT_EQ(read.micro_batches[0][1].toStringRef(), "text");
  EXPECT_FALSE(read.micro_batches[1][2].toBool());
  EXPECT_THAT(read.losses, ElementsAre(0.5, 1.5));
  EXPECT_TRUE(read.drew_random);
  EXPECT_THAT(read.names, ElementsAre("weight", "mean"));
  EXPECT_TRUE(read.tensors[1].equal(rows(1, 1, 3)));
  EXPECT_THAT(read.parameters, ElementsAre("weight", "unused"));
  EXPECT_TRUE(read.gradients[0]->equal(rows(2, 2, 7)));
  EXPECT_FALSE(read.gradients[1].has_value());
}

}  // namespace
}  // namespace ddp_doctor
