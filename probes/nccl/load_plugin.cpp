// SPDX-License-Identifier: BSD-3-Clause
#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

#include "lib/error.h"
#include "probes/nccl/plugin.h"

namespace ddp_doctor {
namespace {

const NcclPlugin& load() {
  const auto file =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "libddp-doctor-nccl.so";
  if (!std::filesystem::exists(file))
    throw Error(
        "NCCL is unavailable: ddp-doctor was built against a LibTorch without it; use --backend "
        "gloo, or build ddp-doctor against pip's torch with -DDDP_DOCTOR_TORCH=$(python3 -c "
        "'import torch,os;print(os.path.dirname(torch.__file__))')");
  // RTLD_GLOBAL: the kernels register themselves with the dispatcher.
  void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr)
    throw Error(fmt::format("NCCL is unavailable: {}; use --backend gloo", ::dlerror()));
  const auto* plugin = static_cast<const NcclPlugin*>(::dlsym(library, kNcclPluginSymbol));
  if (plugin == nullptr)
    throw Error(fmt::format("{} belongs to a different version of ddp-doctor: reinstall ddp-doctor",
                            file.string()));
  return *plugin;
}

}  // namespace

const NcclPlugin& nccl_plugin() {
  static const NcclPlugin& loaded = load();
  return loaded;
}

}  // namespace ddp_doctor
