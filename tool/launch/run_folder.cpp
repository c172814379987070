// SPDX-License-Identifier: BSD-3-Clause
#include "tool/launch/run_folder.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "lib/error.h"
#include "lib/log.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;

fs::path make_temporary() {
  const char* given = std::getenv("TMPDIR");
  std::string pattern =
      (fs::path(given != nullptr && *given != '\0' ? given : "/tmp") / "ddp-doctor-XXXXXX")
          .string();
  if (mkdtemp(pattern.data()) == nullptr) {
    throw Error(fmt::format(
        "cannot create a temporary directory {}: {}; set TMPDIR to a writable directory, "
        "or give --out DIR",
        pattern, std::strerror(errno)));
  }
  return pattern;
}

fs::path make_given(const fs::path& out) {
  std::error_code failure;
  if (fs::exists(out, failure)) {
    if (!fs::is_directory(out))
      throw Error(fmt::format("--out {}: is a file; give a directory", out.string()));
    if (!fs::is_empty(out, failure))
      throw Error(
          fmt::format("--out {}: is not empty; give a new or an empty directory", out.string()));
  } else {
    fs::create_directories(out, failure);
  }
  if (!failure) fs::permissions(out, fs::perms::owner_all, failure);
  if (!failure && access(out.c_str(), W_OK) != 0)
    failure = std::error_code(errno, std::generic_category());
  if (failure)
    throw Error(fmt::format("--out {}: cannot be written ({}); give a writable directory",
                            out.string(), failure.message()));
  return fs::absolute(out);
}

}  // namespace

RunFolder::RunFolder(const std::optional<fs::path>& out)
    : path_(out ? make_given(*out) : make_temporary()), temporary_(!out) {}

RunFolder::~RunFolder() {
  std::error_code failure;
  if (temporary_) fs::remove_all(path_, failure);
  if (failure) log::warn("{} cannot be removed: {}", path_.string(), failure.message());
}

std::vector<int> recorded_ranks(const fs::path& folder) {
  std::vector<int> ranks;
  std::error_code ignored;
  for (fs::directory_iterator entry(folder, ignored), end; entry != end; entry.increment(ignored)) {
    int rank = 0;
    const std::string name = entry->path().filename().string();
    if (name.ends_with(".sqlite") && std::sscanf(name.c_str(), "rank-%d.", &rank) == 1)
      ranks.push_back(rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

}  // namespace ddp_doctor
