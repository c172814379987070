// SPDX-License-Identifier: BSD-3-Clause
#include "lib/placement/infer.h"

#include <gtest/gtest.h>

namespace ddp_doctor {
namespace {

const std::vector<Ranks> kAlike{{0, 1}}, kApart{{0}, {1}}, kNothing;

// Of a hidden width 16, which ranks split layers of 24 and 32 along.
std::vector<Undeclared> split_model() {
  return {{"embedding", kAlike, {36, 16}},
          {"qkv", kApart, {24, 16}},
          {"up", kApart, {32, 16}},
          {"down", kApart, {16, 32}},
          {"norm", kAlike, {16}, true}};
}

std::vector<Ranks> inferred_of(std::vector<Undeclared> model, Undeclared tensor) {
  model.push_back(std::move(tensor));
  return infer_replicas(model).back();
}

TEST(Infer, AModuleThatBeginsApartIsAShardWithItsBias) {
  EXPECT_EQ(inferred_of(split_model(), {"up", kAlike, {32}, true}), kApart);
}

TEST(Infer, TheBiasOfALayerWhoseInputsAreSplitIsAReplica) {
  EXPECT_EQ(inferred_of(split_model(), {"down", kAlike, {16}, true}), kNothing);
  EXPECT_EQ(inferred_of(split_model(), {"down", kAlike, {16}}), kNothing) << "not zeros";
  EXPECT_EQ(inferred_of(split_model(), {"up", kAlike, {32}}), kApart);
}

TEST(Infer, InAPipelineConstantsOfOneNameAreOfDifferentLayers) {
  const std::vector<Ranks> all{{0, 1, 2, 3}}, stages{{0, 2}, {1, 3}}, tied{{0, 1, 2, 3}};
  const auto replicas = infer_in_stages({{"rnn", stages, {48, 16}, false, true},
                                         {"norm", all, {16}, true},
                                         {"embedding", tied, {36, 16}}});
  EXPECT_EQ(replicas[0], stages);
  EXPECT_EQ(replicas[1], stages);
  EXPECT_EQ(replicas[2], tied);
  const auto lacking = infer_in_stages({{"first", {{0, 2}, {1}, {3}}, {36, 16}},
                                        {"last", {{0}, {1, 3}, {2}}, {16, 36}},
                                        {"norm", all, {16}, true}});
  EXPECT_EQ(lacking[2], stages);
}

TEST(Infer, StagesOfOneSeedMayShareAnEmbedding) {
  Undeclared embedding{"words", {{0, 2}, {1}}, {56, 32}};
  const Undeclared lower{"blocks.0", {{0}, {1}, {2}}, {32, 32}};
  const std::vector<Ranks> each = {{0}, {1}, {2}};
  EXPECT_EQ(infer_in_stages({embedding, lower}, true)[0], each) << "a layer of each stage";
  embedding.embedding = true;
  EXPECT_EQ(infer_in_stages({embedding, lower}, true)[0], embedding.alike);
  EXPECT_EQ(infer_in_stages({embedding, lower}, true)[1], each);
}

TEST(Infer, StagesOfOneSeedShareNothing) {
  const std::vector<Ranks> all{{0, 1}}, each{{0}, {1}};
  const std::vector<Undeclared> alike{{"rnn", all, {48, 16}}, {"norm", all, {16}, true}};
  EXPECT_EQ(infer_in_stages(alike, true)[0], each);
  EXPECT_EQ(infer_in_stages(alike, true)[1], each);
  EXPECT_EQ(infer_in_stages(alike)[0], all) << "nothing tells that they are stages";
  const auto with_a_head = infer_in_stages({alike[0], {"head", {{0}, {1}}, {16, 36}}});
  EXPECT_EQ(with_a_head[0], each);
  const auto tied =
      infer_in_stages({{"rnn", each, {48, 16}, false, true}, {"embedding", all, {36, 16}}}, true);
  EXPECT_EQ(tied[1], all);
}

TEST(Infer, AConstantOfASizeThatOnlyShardsHaveIsAShard) {
  EXPECT_EQ(inferred_of(split_model(), {"scale", kAlike, {24}, true}), kApart);
  EXPECT_EQ(inferred_of(split_model(), {"up.lora_b", kAlike, {32, 4}, true}), kApart);
}

TEST(Infer, AConstantOfTheWholeWidthIsAReplica) {
  EXPECT_EQ(infer_replicas(split_model()).back(), kNothing);
  EXPECT_EQ(inferred_of(split_model(), {"head_norm", kAlike, {8}, true}), kNothing);
}

TEST(Infer, WhatIsNotConstantAndBeginsAlikeIsAReplica) {
  EXPECT_EQ(inferred_of(split_model(), {"router", kAlike, {24, 16}}), kNothing);
}

TEST(Infer, TheSizeOfAllShardsIsWholeThoughNoOtherTensorHasIt) {
  auto model = split_model();
  model.erase(model.begin());
  EXPECT_EQ(infer_replicas(model).back(), kNothing);
  EXPECT_EQ(inferred_of(model, {"scale", kAlike, {24}, true}), kApart);
}

TEST(Infer, WhereEitherSizeMayBeTheWholeOneNothingFollows) {
  const std::vector<Undeclared> model = {{"up", kApart, {32, 16}}, {"down", kApart, {16, 32}}};
  EXPECT_EQ(inferred_of(model, {"norm", kAlike, {16}, true}), kNothing);
  EXPECT_EQ(inferred_of(model, {"scale", kAlike, {32}, true}), kNothing);
}

}  // namespace
}  // namespace ddp_doctor
