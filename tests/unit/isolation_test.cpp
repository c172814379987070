// SPDX-License-Identifier: BSD-3-Clause
#include "tool/launch/isolation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "lib/error.h"
#include "tests/temporary_folder.h"
#include "tool/launch/folder_state.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;
using Kind = Isolation::Kind;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

void write(const fs::path& file, const std::string& text) {
  fs::create_directories(fs::absolute(file).parent_path());
  std::ofstream(file) << text;
}

std::string content(const fs::path& file) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

// A project and a working folder in it; tests run in any order, so it is left again.
class IsolationTest : public testing::TestWithParam<Kind> {
 protected:
  IsolationTest() : before_(fs::current_path()) {
    project_ = fs::canonical(folder_.path()) / "project";
    fs::create_directory(temporary_ = fs::canonical(folder_.path()) / "tmp");
    if (const char* given = std::getenv("TMPDIR")) given_ = given;
    setenv("TMPDIR", temporary_.c_str(), 1);
    write(project_ / "train.py", "train\n");
    write(project_ / "logs" / "old.txt", "old\n");
    fs::create_directory(records_ = fs::canonical(folder_.path()) / "records");
    fs::current_path(project_);
  }
  ~IsolationTest() override {
    fs::current_path(before_);
    given_.empty() ? unsetenv("TMPDIR") : setenv("TMPDIR", given_.c_str(), 1);
  }

  // Nothing where this kind of view is not allowed here.
  std::unique_ptr<Isolation> isolation(std::vector<std::string> words = {}) {
    try {
      return std::make_unique<Isolation>(
          std::vector{ProgramOptions{.program = "train.py", .words = std::move(words)}}, records_,
          GetParam());
    } catch (const Error& error) {
      // In CI too: a container may forbid namespaces.
      if (GetParam() == Kind::kCopy) throw;
      why_not_ = error.what();
      return nullptr;
    }
  }

  // The exit status of `command`, for a shell that sees the view.
  static int run(const View& view, const std::string& command) {
    const pid_t child = fork();
    if (child == 0) {
      if (!view.enter()) _exit(126);
      execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      _exit(127);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
  }

  TemporaryFolder folder_;
  fs::path project_, records_, temporary_;
  std::string why_not_;

 private:
  const fs::path before_;
  std::string given_;
};

TEST_P(IsolationTest, KeepsWhatARunWritesFromTheFolder) {
  const auto apart = isolation();
  if (!apart) GTEST_SKIP() << why_not_;
  const auto view = apart->view();
  EXPECT_EQ(run(*view, "echo new > logs/old.txt && echo 1 > checkpoint.pt && rm train.py"), 0);
  EXPECT_EQ(content("logs/old.txt"), "old\n");
  EXPECT_FALSE(fs::exists("checkpoint.pt"));
  EXPECT_TRUE(fs::exists("train.py"));
  EXPECT_THAT(view->written(),
              UnorderedElementsAre(project_ / "logs/old.txt", project_ / "checkpoint.pt",
                                   project_ / "train.py"));
}

TEST_P(IsolationTest, BeginsFromTheStateBeforeTheFirstRun) {
  write("resume.pt", "step 3\n");
  fs::create_symlink("resume.pt", "latest");
  const auto apart = isolation();
  if (!apart) GTEST_SKIP() << why_not_;
  write("resume.pt", "step 12\n");
  write("run-1/log.txt", "trained\n");
  write("run-1/deep/log.txt", "trained\n");
  fs::remove("latest");
  fs::remove_all("logs");
  const auto view = apart->view();
  EXPECT_EQ(
      run(*view,
          "test \"$(cat latest)\" = 'step 3' && test ! -e run-1 && test \"$(cat logs/old.txt)\" "
          "= old && mkdir run-1 && test -z \"$(ls run-1)\""),
      0);
  EXPECT_EQ(content("resume.pt"), "step 12\n");
  EXPECT_EQ(content("run-1/log.txt"), "trained\n");
  EXPECT_FALSE(fs::exists("logs"));
}

TEST_P(IsolationTest, EveryViewIsItsOwn) {
  const auto apart = isolation();
  if (!apart) GTEST_SKIP() << why_not_;
  for (int i = 0; i < 2; ++i) {
    const auto view = apart->view();
    EXPECT_EQ(run(*view, "test ! -e checkpoint.pt && touch checkpoint.pt"), 0);
  }
}

TEST_P(IsolationTest, ReplacesAFileForOneViewOnly) {
  const auto apart = isolation();
  if (!apart) GTEST_SKIP() << why_not_;
  EXPECT_TRUE(apart->covers("train.py"));
  EXPECT_FALSE(apart->covers("/usr/lib/python3/site.py"));
  const auto view = apart->view({{"train.py", "changed\n"}});
  EXPECT_EQ(run(*view, "test \"$(cat train.py)\" = changed"), 0);
  EXPECT_EQ(content("train.py"), "train\n");
  EXPECT_THAT(view->written(), IsEmpty()) << "the run did not";
}

// Files that are too large to be kept, by their sizes alone.
TEST_P(IsolationTest, MayLosePythonsCachesAndNothingElse) {
  if (GetParam() == Kind::kCopy) return;  // they would be copied
  const auto large = [&](const fs::path& name) {
    write(name, "");
    fs::resize_file(name, std::uintmax_t{600} << 20);
  };
  large("__pycache__/model.pyc");
  large("data.bin");
  const auto apart = isolation();
  if (!apart) GTEST_SKIP() << why_not_;
  fs::resize_file("__pycache__/model.pyc", 10);
  EXPECT_EQ(run(*apart->view(), "test -f train.py"), 0);
  fs::resize_file("data.bin", 10);
  EXPECT_THROW(apart->view(), ContentLost);
}

TEST_P(IsolationTest, CoversTheFoldersThatArgumentsName) {
  const fs::path out = fs::canonical(folder_.path()) / "out";
  fs::create_directory(out);
  const auto apart = isolation({"--out=" + (out / "run").string(), "--lr", "1e-3", "https://x/y"});
  if (!apart) GTEST_SKIP() << why_not_;
  EXPECT_THAT(apart->folders(), ElementsAre(project_, out));
  const auto view = apart->view();
  const std::string word = view->inside("--out=" + (out / "run").string()).substr(6);
  EXPECT_EQ(run(*view, "mkdir " + word + " && touch " + word + "/model.pt"), 0);
  EXPECT_TRUE(fs::is_empty(out));
  EXPECT_THAT(view->written(), ElementsAre(out / "run/model.pt"));
}

TEST_P(IsolationTest, CoversWhatLinksLeadToButNoInstalledSoftware) {
  const fs::path scratch = fs::canonical(folder_.path()) / "scratch";
  const fs::path python = fs::canonical(folder_.path()) / "python" / "bin";
  fs::create_directories(scratch);
  fs::create_directories(python);
  write(python / "python3", "");
  write(project_ / ".venv" / "pyvenv.cfg", "");
  fs::create_directory(project_ / ".venv" / "bin");
  fs::create_symlink(scratch, "checkpoints");
  fs::create_symlink(python / "python3", ".venv/bin/python3");
  fs::create_symlink("/usr/bin/env", "env");
  const auto apart = isolation();
  if (!apart) GTEST_SKIP() << why_not_;
  EXPECT_THAT(apart->folders(), ElementsAre(project_, scratch));
}

TEST_P(IsolationTest, CoversTheWorkingFolderOfACommand) {
  EXPECT_THAT(folders_of({ProgramOptions{.words = {"sh", "-c", "torchrun train.py"}}}),
              ElementsAre(project_));
}

TEST_P(IsolationTest, LeavesNothingBehind) {
  {
    const auto apart = isolation();
    if (!apart) GTEST_SKIP() << why_not_;
    run(*apart->view(), "mkdir -p a/b && touch a/b/c && chmod 0 a/b");
  }
  EXPECT_TRUE(fs::is_empty(temporary_));
}

INSTANTIATE_TEST_SUITE_P(Kinds, IsolationTest, testing::Values(Kind::kOverlay, Kind::kCopy),
                         [](const auto& info) {
                           return info.param == Kind::kOverlay ? "Overlay" : "Copy";
                         });

class OverlayTest : public IsolationTest {};

TEST_P(OverlayTest, LeadsAbsolutePathsToTheView) {
  const auto apart = isolation();
  if (!apart) GTEST_SKIP() << why_not_;
  const auto view = apart->view();
  EXPECT_EQ(run(*view, "touch " + (project_ / "model.pt").string()), 0);
  EXPECT_FALSE(fs::exists("model.pt"));
}

TEST_P(OverlayTest, RecordsInTheFolderStayReachable) {
  fs::create_directory(records_ = project_ / "records");
  const auto apart = isolation();
  if (!apart) GTEST_SKIP() << why_not_;
  const auto view = apart->view();
  EXPECT_EQ(run(*view, "touch records/rank-00000.sqlite"), 0);
  EXPECT_TRUE(fs::exists("records/rank-00000.sqlite"));
  EXPECT_THAT(view->written(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Kinds, OverlayTest, testing::Values(Kind::kOverlay));

class CopyTest : public IsolationTest {};

TEST_P(CopyTest, SaysIfTheOriginalWasReached) {
  const auto apart = isolation();
  const auto view = apart->view();
  run(*view, "touch " + (project_ / "model.pt").string());
  EXPECT_THROW(view->written(), Error);
}

// A file that takes no room on the disk, and would as a copy.
TEST_P(CopyTest, RefusesWhatIsTooLargeBeforeItIsCopied) {
  write(project_ / "data.bin", "");
  fs::resize_file(project_ / "data.bin", std::uintmax_t{1} << 40);
  try {
    isolation();
    GTEST_SKIP() << "a file system with reflinks";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("is larger than 1073 MB, too large for a copy"));
  }
  EXPECT_TRUE(fs::is_empty(temporary_));
}

INSTANTIATE_TEST_SUITE_P(Kinds, CopyTest, testing::Values(Kind::kCopy));

}  // namespace
}  // namespace ddp_doctor
