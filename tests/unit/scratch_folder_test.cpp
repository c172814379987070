// SPDX-License-Identifier: BSD-3-Clause
#include "tool/launch/scratch_folder.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>

#include "tests/temporary_folder.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;
using std::chrono::hours;

void age(const fs::path& folder) {
  fs::last_write_time(folder, fs::file_time_type::clock::now() - hours(1));
}

TEST(ScratchFolder, RemovesWhatAKilledProcessLeft) {
  const TemporaryFolder inside;
  const fs::path left = inside.path() / "view-killed";
  fs::create_directories(left / "0");
  std::ofstream(left / "0" / "model.pt") << "large";
  age(left);
  const ScratchFolder now(inside.path(), "view");
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(fs::is_directory(now.path()));
}

TEST(ScratchFolder, LeavesWhatIsInUseAndWhatIsNotItsOwn) {
  const TemporaryFolder inside;
  const ScratchFolder used(inside.path(), "view");
  age(used.path());
  for (const char* other : {"viewer", "views-of-mine"}) {
    fs::create_directory(inside.path() / other);
    age(inside.path() / other);
  }
  fs::create_directory(inside.path() / "view-begins");  // not locked yet
  const ScratchFolder now(inside.path(), "view");
  for (const char* name : {"viewer", "views-of-mine", "view-begins"})
    EXPECT_TRUE(fs::exists(inside.path() / name)) << name;
  EXPECT_TRUE(fs::exists(used.path()));
}

}  // namespace
}  // namespace ddp_doctor
