// SPDX-License-Identifier: BSD-3-Clause
// TorchScript modules in the wrapper, and the tensors in what they return.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <optional>
#include <sstream>

#include "tests/torch/ddp_ranks.h"

namespace ddp_doctor::test {
namespace {

using testing::ElementsAre;

// Written to memory and read back, as a program from a file is.
torch::jit::Module script(const std::string& source) {
  torch::jit::Module root("Net");
  torch::jit::Module child("Child");
  child.register_parameter("weight", torch::ones({2}).set_requires_grad(true), /*is_buffer=*/false);
  child.register_buffer("running", torch::zeros({1}));
  root.register_module("child", child);
  root.register_parameter("bias", torch::ones({2}).set_requires_grad(true), /*is_buffer=*/false);
  root.define(source);
  std::stringstream file;
  root.save(file);
  return torch::jit::load(file);
}

constexpr const char* kTuple = R"(
def forward(self, x):
    return (self.child.weight * x).sum(), [(self.bias * x).sum()], 7
)";

constexpr const char* kDict = R"(
def forward(self, x):
    return {"used": (self.child.weight * x).sum(), "unused": (self.bias * x).sum()}
)";

TEST(Script, IsDescribedAsPythonDescribesIt) {
  const ModuleState state = describe(script(kTuple));
  EXPECT_EQ(state.type_name, "RecursiveScriptModule");
  EXPECT_THAT(state.names, ElementsAre("bias", "child.weight"));
  EXPECT_EQ(state.buffers().size(), 1U);
}

TEST(Script, TupleComesBackWithItsLossUsable) {
  on_ranks(2, [](int rank, const ProcessGroupPtr& group) {
    DistributedDataParallel ddp(script(kTuple), group, {.find_unused_parameters = true});
    for (int step = 1; step <= 3; ++step) {
      const c10::IValue output = ddp(tensor_of({2, 4}) * (rank + 1));
      const auto& elements = output.toTupleRef().elements();
      ASSERT_EQ(elements.size(), 3U);
      EXPECT_EQ(elements[2].toInt(), 7);
      const at::Tensor listed = elements[1].toTensorVector().at(0);
      EXPECT_EQ(listed.grad_fn()->name(), "DistributedDataParallelPassThrough");
      elements[0].toTensor().backward();
    }
    EXPECT_TRUE(ddp.module().attr("child").toModule().attr("weight").toTensor().grad().equal(
        tensor_of({9, 18})));
    EXPECT_FALSE(ddp.module().attr("bias").toTensor().grad().defined());
  });
}

TEST(Script, DictComesBackWithItsLossUsable) {
  on_ranks(2, [](int rank, const ProcessGroupPtr& group) {
    DistributedDataParallel ddp(script(kDict), group, {.static_graph = true});
    for (int step = 1; step <= 2; ++step) {
      const c10::IValue output = ddp(tensor_of({2, 4}) * (rank + 1));
      const auto entries = output.toGenericDict();
      ASSERT_EQ(entries.size(), 2U);
      (entries.at("used").toTensor() + entries.at("unused").toTensor()).backward();
    }
    EXPECT_TRUE(ddp.module().attr("bias").toTensor().grad().equal(tensor_of({6, 12})));
  });
}

TEST(Script, AnotherMethodThanForwardCanRunInsideTheWrapper) {
  on_ranks(2, [](int rank, const ProcessGroupPtr& group) {
    DistributedDataParallel ddp(script(R"(
def training_step(self, x):
    return (self.child.weight * self.bias * x).sum()
)"),
                                group);
    const c10::IValue loss = ddp.run([&] {
      return ddp.module().get_method("training_step")({tensor_of({2, 4}) * (rank + 1)});
    });
    loss.toTensor().backward();
    EXPECT_TRUE(ddp.module().attr("bias").toTensor().grad().equal(tensor_of({3, 6})));
  });
}

at::Tensor number(float value) { return torch::tensor(value); }

std::vector<float> numbers(const std::vector<at::Tensor>& tensors) {
  std::vector<float> values;
  for (const at::Tensor& tensor : tensors) values.push_back(tensor.item<float>());
  return values;
}

TEST(Tensors, AreFoundInCppContainersAndReplacedInOrder) {
  std::tuple<at::Tensor, std::vector<at::Tensor>, std::optional<at::Tensor>, int,
             std::array<at::Tensor, 2>, std::pair<std::string, at::Tensor>, at::Tensor,
             std::map<std::string, at::Tensor>, std::vector<bool>>
      value{number(1),
            {number(2), number(3)},
            std::nullopt,
            9,
            {number(4), number(5)},
            {"six", number(6)},
            at::Tensor(),
            {{"a", number(7)}},
            {true}};
  EXPECT_THAT(numbers(collect_tensors(value)), ElementsAre(1, 2, 3, 4, 5, 6, 7));
  std::vector<at::Tensor> replacements;
  for (int i = 11; i <= 17; ++i) replacements.push_back(number(i));
  replace_tensors(value, replacements);
  EXPECT_THAT(numbers(collect_tensors(value)), ElementsAre(11, 12, 13, 14, 15, 16, 17));
  EXPECT_EQ(std::get<3>(value), 9);
}

TEST(Tensors, InScriptValuesAreReplacedInNewContainers) {
  c10::Dict<std::string, at::Tensor> dict;
  dict.insert("b", number(2));
  dict.insert("a", number(3));
  const c10::List<at::Tensor> list({number(4)});
  const auto tuple = c10::ivalue::Tuple::create({number(1), dict, list, c10::IValue(), 5});
  c10::IValue value = tuple;
  EXPECT_THAT(numbers(collect_tensors(value)), ElementsAre(1, 2, 3, 4));
  replace_tensors(value, {number(11), number(12), number(13), number(14)});
  EXPECT_THAT(numbers(collect_tensors(value)), ElementsAre(11, 12, 13, 14));
  EXPECT_EQ(dict.at("b").item<float>(), 2);
  EXPECT_THAT(numbers(collect_tensors(c10::IValue(tuple))), ElementsAre(1, 2, 3, 4));
}

struct Named {
  at::Tensor loss;
};
void visit_tensors(Named& named, const TensorVisitor& visit) { visit(named.loss); }

TEST(Tensors, InAUsersOwnTypeAreFoundByItsVisitTensors) {
  std::vector<Named> value{{number(1)}, {number(2)}};
  EXPECT_THAT(numbers(collect_tensors(value)), ElementsAre(1, 2));
}

}  // namespace
}  // namespace ddp_doctor::test
