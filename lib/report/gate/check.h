// SPDX-License-Identifier: BSD-3-Clause
// The findings of a job's records, for your own tests: while it runs, or afterwards.
//
//   const ddp_doctor::Check check = ddp_doctor::check_records(folder);
//   EXPECT_TRUE(check.in_sync()) << check.report;      // testing.h has matchers for it
#pragma once

#include <ddp_doctor/error.h>
#include <ddp_doctor/finding.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace ddp_doctor {

struct Check {
  std::vector<Finding> findings;  // root causes first, their consequences nested under them
  int world_size = 1;
  std::int64_t steps = 0;  // optimizer steps whose tensors were compared across all ranks
  std::string report;      // for people, as `ddp-doctor report` prints it

  // By its code or its name, among causes and consequences; null if it was not found.
  const Finding* find(std::string_view code_or_name) const;
  // Several ranks were compared for at least one step, and nothing was found at warning or above.
  // False does not mean sick: `steps` may be 0.
  bool in_sync() const;
};

// Reads the ranks' records in `folder`. Throws Error if there is none, or none that can be read.
Check check_records(const std::filesystem::path& folder);

}  // namespace ddp_doctor
