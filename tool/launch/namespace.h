// SPDX-License-Identifier: BSD-3-Clause
// A mount namespace with overlays over folders, for other processes to join. It lasts as long as
// this object or a process in it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace ddp_doctor {

struct Overlay {
  std::filesystem::path folder;  // what is below, and where it is mounted
  std::filesystem::path upper;   // gets what is written
  std::filesystem::path work;    // an empty folder of the same file system
};

class MountNamespace {
 public:
  // `visible` is reachable though an overlay may cover it. Throws Error.
  MountNamespace(const std::vector<Overlay>& overlays, const std::filesystem::path& visible);
  ~MountNamespace();
  MountNamespace(const MountNamespace&) = delete;
  MountNamespace& operator=(const MountNamespace&) = delete;

  // Async-signal-safe, for a process with one thread. The working folder is then to be set anew.
  bool join() const;

 private:
  int user_ = -1;  // -1: root needs none of its own
  int mounts_ = -1;
};

}  // namespace ddp_doctor
