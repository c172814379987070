// SPDX-License-Identifier: BSD-3-Clause

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "lib/error.h"
#include "lib/parity/figures.h"
#include "tests/temporary_folder.h"
#include "tests/unit/planted_gradients.h"

namespace ddp_doctor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

nlohmann::json content() {
  return {{"version", 2},
          {"random", nlohmann::json::array()},
          {"frozen_differ", {"Teacher"}},
          {"low_precision", true},
          {"dealt", true},
          {"steps",
           {{{"step", 4},
             {"alone", {0, 1}},
             {"padded", 1},
             {"again", true},
             {"not_told", nlohmann::json::array()},
             {"module", nullptr},
             {"counts", {{"samples", {8, 6}}}},
             {"loss", {{"ranks", {1.5, nullptr}}, {"one", 1.25}}},
             {"parameters",
              {{{"name", "w"},
                {"rank", 1},
                {"products", triangle_of({{1}, {2}, {3}, {4}, {5}, {6}, {7}})}}}}}}}};
}

class FiguresFile {
 public:
  ParityFigures of(const std::string& text) const {
    std::ofstream(file()) << text;
    return load_parity_figures(file());
  }
  std::string refusal(const std::string& text) const {
    try {
      of(text);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  std::filesystem::path file() const { return folder_.path() / "figures.json"; }

 private:
  TemporaryFolder folder_;
};

TEST(ParityFigures, AreRead) {
  const auto figures = FiguresFile().of(content().dump());
  ASSERT_THAT(figures.steps, SizeIs(1));
  const auto& step = figures.steps[0];
  EXPECT_EQ(step.step, 4);
  const auto& products = step.parameters.at(0).products;
  EXPECT_EQ(step.parameters.at(0).rank, 1);
  ASSERT_TRUE(step.padded);
  EXPECT_DOUBLE_EQ(products.at(kOfOne, step.padded->alone), 10);
  EXPECT_DOUBLE_EQ(products.at(kOfOne, step.padded->padded), 12);
  EXPECT_DOUBLE_EQ(products.at(kOfOne, *step.again), 14);
  EXPECT_THAT(step.rank_losses, ElementsAre(1.5, 0.0));
  EXPECT_THAT(step.counts.at("samples"), ElementsAre(8, 6));
  EXPECT_FALSE(step.module);
  EXPECT_THAT(figures.frozen_differ, ElementsAre("Teacher"));
  EXPECT_TRUE(figures.low_precision);
  EXPECT_TRUE(figures.dealt);
}

TEST(ParityFigures, HaveTheReasonWhyThereAreNone) {
  const FiguresFile file;
  write_impossible(file.file(), "no samples");
  EXPECT_EQ(load_parity_figures(file.file()).impossible, "no samples");
}

TEST(ParityFigures, AreRefusedIfDamaged) {
  const FiguresFile file;
  const std::string text = content().dump();
  auto fewer = content();
  fewer["steps"][0]["parameters"][0]["products"].erase(0);
  auto older = content();
  older["version"] = 1;
  EXPECT_THAT(file.refusal(older.dump()), HasSubstr("version 1, and this ddp-doctor reads 2"));
  auto without = content();
  without["steps"][0].erase("alone");
  for (const auto& damaged : {text.substr(0, text.size() / 2), std::string(), std::string("[]"),
                              fewer.dump(), without.dump()}) {
    EXPECT_THAT(file.refusal(damaged), HasSubstr("figures.json: cannot be read ("));
    EXPECT_THAT(file.refusal(damaged), HasSubstr("run ddp-doctor parity again"));
  }
  EXPECT_THAT(file.refusal(fewer.dump()), HasSubstr("27 inner products, not those of 7"));
}

TEST(ParityFigures, AreRefusedIfMissing) {
  const FiguresFile file;
  try {
    load_parity_figures(file.file());
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("run ddp-doctor parity again"));
  }
}

}  // namespace
}  // namespace ddp_doctor
