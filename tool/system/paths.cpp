// SPDX-License-Identifier: BSD-3-Clause
#include "tool/system/paths.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "lib/error.h"

namespace ddp_doctor {

namespace fs = std::filesystem;

namespace {

Error without_worker(const fs::path& missing) {
  return Error(
      fmt::format("{} is missing: TorchScript programs and demos need ddp-doctor's worker, which "
                  "links LibTorch, and this installation has none (programs in Python do not need "
                  "it). On Debian: `apt install ddp-doctor-worker`; elsewhere use the container "
                  "image, or build ddp-doctor with -DDDP_DOCTOR_WITH_TORCH=ON: docs/install.md",
                  missing.string()));
}

}  // namespace

fs::path installation() {
  // Tests and packagers may run the tool from elsewhere.
  if (const char* given = std::getenv("DDP_DOCTOR_HOME")) return given;
  // Not fs::read_symlink, which asks lstat first: under qemu that fails.
  char self[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self);
  if (length < 0) {
    throw Error(
        fmt::format("cannot find the installation through /proc/self/exe ({}): mount /proc here, "
                    "or set DDP_DOCTOR_HOME to the folder that has bin/ and libexec/",
                    std::strerror(errno)));
  }
  return fs::path(std::string_view(self, static_cast<std::size_t>(length)))
      .parent_path()
      .parent_path();
}

fs::path script_probe() {
  const fs::path worker = installation() / "libexec/ddp-doctor/script-probe";
  if (!fs::exists(worker)) throw without_worker(worker);
  return worker;
}

fs::path python_probe() {
  const fs::path folder = installation() / "libexec/ddp-doctor/python";
  if (!fs::exists(folder / "sitecustomize.py")) {
    throw Error(
        fmt::format("{} is missing: this installation of ddp-doctor is incomplete, so it cannot "
                    "examine programs in Python; install it again",
                    (folder / "sitecustomize.py").string()));
  }
  return fs::absolute(folder);
}

fs::path cuda_library() {
  return fs::absolute(installation() / "libexec/ddp-doctor/libddp-doctor-cuda.so");
}

fs::path examples_folder() {
  for (const char* place : {"examples", "share/ddp-doctor/examples"}) {
    if (const fs::path folder = installation() / place; fs::exists(folder / "orphan.pt"))
      return folder;
  }
  throw without_worker(installation() / "share/ddp-doctor/examples");
}

}  // namespace ddp_doctor
