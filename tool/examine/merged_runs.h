// SPDX-License-Identifier: BSD-3-Clause
// The run folders of one job from several machines, as one examination.
#pragma once

#include <filesystem>
#include <vector>

#include "tool/launch/run_folder.h"

namespace ddp_doctor {

class MergedRuns {
 public:
  // `folders`: of several machines, each with the same runs and with ranks of its own. Throws Error
  // where they cannot be of one job. They must outlive this.
  explicit MergedRuns(const std::vector<std::filesystem::path>& folders);

  // A folder like one that a single machine wrote; removed with this object.
  const std::filesystem::path& path() const { return merged_.path(); }

 private:
  RunFolder merged_;
};

}  // namespace ddp_doctor
