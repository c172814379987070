// SPDX-License-Identifier: BSD-3-Clause
// Why the probe is not in a process: the true reason, or none.

#include "tool/launch/unprobed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/temporary_folder.h"

namespace ddp_doctor {
namespace {

using testing::HasSubstr;

class Unprobed : public testing::Test {
 protected:
  Unprobed() {
    process_.words = {"/usr/bin/python3", "train.py"};
    process_.python = true;
    process_.environment = {{"DDP_DOCTOR_RECORD", "/run"}, {"PYTHONPATH", "/probe:/mine"}};
  }
  std::string why() const { return why_unprobed(process_, "/probe").value_or("in"); }

  TorchProcess process_;
};

TEST_F(Unprobed, IsNothingWhereItGetsIn) {
  EXPECT_EQ(why(), "in");
  process_.words = {"python3", "-X",      "importtime", "-W",      "error", "-u",
                    "-m",      "package", "-I",         "--epoch", "-E"};
  EXPECT_EQ(why(), "in");
  process_.words = {"python3", "-BuX", "dev", "-", "-S"};
  EXPECT_EQ(why(), "in");
  process_.words = {"python3", "-WIgnore", "-cSE", "-E"};
  EXPECT_EQ(why(), "in");
  process_.words = {"./embeds", "-I"};
  EXPECT_EQ(why(), "in");
}

TEST_F(Unprobed, NamesTheInterpretersOption) {
  for (const char* word : {"-I", "-uI", "-BIu"}) {
    process_.words = {"/venv/bin/python3.11", "-X", "dev", word, "train.py"};
    EXPECT_EQ(why(), std::string("/venv/bin/python3.11 -X dev ") + word +
                         " train.py loads torch, without the probe: python -I ignores PYTHONPATH, "
                         "through which the probe is loaded; omit -I");
  }
  process_.words = {"python", "-E", "train.py"};
  EXPECT_THAT(why(), HasSubstr("python -E ignores PYTHONPATH"));
  process_.words = {"python", "-S", "train.py"};
  EXPECT_THAT(why(), HasSubstr("python -S does not run sitecustomize"));
}

TEST_F(Unprobed, NamesWhoDroppedTheEnvironment) {
  process_.environment = {{"PATH", "/bin"}};
  EXPECT_THAT(why(), HasSubstr("the command that ddp-doctor started did not pass its environment"));
  process_.parent = {"bash", "launch.sh"};
  EXPECT_THAT(why(), HasSubstr("the probe: bash launch.sh did not pass its environment on"));
  process_.words = {"python", "-I", "train.py"};
  EXPECT_THAT(why(), HasSubstr("did not pass its environment on"));
}

TEST_F(Unprobed, ShowsAPythonpathThatWasReplaced) {
  process_.environment["PYTHONPATH"] = "/src:/libs";
  EXPECT_THAT(why(), HasSubstr("its PYTHONPATH was changed to '/src:/libs'; add to it, instead: "
                               "PYTHONPATH=/src:/libs:$PYTHONPATH"));
  process_.environment.erase("PYTHONPATH");
  EXPECT_THAT(why(), HasSubstr("its PYTHONPATH was changed to ''"));
}

TEST_F(Unprobed, NamesTheSitecustomizeThatComesFirst) {
  const TemporaryFolder folder;
  const auto first = folder.path().string();
  process_.environment["PYTHONPATH"] = first + ":/probe";
  EXPECT_EQ(why(), "in");
  std::ofstream(folder.path() / "sitecustomize.py") << "pass\n";
  EXPECT_THAT(why(), HasSubstr(first + "/sitecustomize.py comes before its sitecustomize"));
  process_.environment["PYTHONPATH"] = "/probe:" + first;
  EXPECT_EQ(why(), "in");
}

TEST_F(Unprobed, MayBeWanted) {
  process_.environment["DDP_DOCTOR"] = "0";
  EXPECT_THAT(why(), HasSubstr("DDP_DOCTOR=0 in its environment disables it"));
}

}  // namespace
}  // namespace ddp_doctor
