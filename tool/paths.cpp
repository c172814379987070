#include "tool/paths.h"

#include <fmt/format.h>

#include "lib/error.h"

namespace ddp_doctor {

namespace fs = std::filesystem;

fs::path installation() {
  // Tests and packagers may run the tool from elsewhere.
  if (const char* given = std::getenv("DDP_DOCTOR_HOME")) return given;
  return fs::read_symlink("/proc/self/exe").parent_path().parent_path();
}

fs::path script_probe() {
  const fs::path worker = installation() / "libexec/ddp-doctor/script-probe";
  if (!fs::exists(worker)) {
    throw Error(
        fmt::format("{} is missing: this build of ddp-doctor has no LibTorch, so it cannot run "
                    "TorchScript programs; "
                    "build it with -DDDP_DOCTOR_WITH_TORCH=ON",
                    worker.string()));
  }
  return worker;
}

fs::path python_probe() {
  const fs::path folder = installation() / "libexec/ddp-doctor/python";
  if (!fs::exists(folder / "sitecustomize.py")) {
    throw Error(
        fmt::format("{} is missing: this installation of ddp-doctor is incomplete, so it cannot "
                    "examine programs in "
                    "Python; install it again",
                    (folder / "sitecustomize.py").string()));
  }
  return fs::absolute(folder);
}

fs::path examples_folder() {
  for (const char* place : {"examples", "share/ddp-doctor/examples"}) {
    if (const fs::path folder = installation() / place; fs::exists(folder / "orphan.pt"))
      return folder;
  }
  throw Error(
      fmt::format("no example programs under {}: build ddp-doctor with -DDDP_DOCTOR_WITH_TORCH=ON",
                  installation().string()));
}

}  // namespace ddp_doctor
