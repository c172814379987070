// SPDX-License-Identifier: BSD-3-Clause
#include "tool/cli/source_root.h"

namespace ddp_doctor {

SourceRoot source_root() {
  namespace fs = std::filesystem;
  std::error_code failure;
  const fs::path folder = fs::current_path(failure);
  for (fs::path root = folder;; root = root.parent_path()) {
    if (fs::exists(root / ".git", failure)) return {root, folder};
    if (root == root.parent_path()) return {folder, folder};
  }
}

}  // namespace ddp_doctor
