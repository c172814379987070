// SPDX-License-Identifier: BSD-3-Clause
#include "tool/launch/rank_exit.h"

#include <sys/wait.h>

#include <chrono>

#include "lib/error.h"
#include "lib/log.h"
#include "lib/record/progress.h"
#include "lib/record/reader.h"
#include "lib/record/worker.h"
#include "lib/record/writer.h"
#include "tool/launch/relay.h"

namespace ddp_doctor {

std::int64_t exit_time_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void note_status(RankExit& exit, int status) {
  exit.time_ns = exit_time_ns();
  exit.kind = WIFSIGNALED(status) ? RankExit::Kind::kSignaled : RankExit::Kind::kExited;
  exit.code = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

void note_progress(RankExit& exit, const std::filesystem::path& folder) {
  const Progress progress = read_progress(progress_file(folder, exit.rank));
  exit.step = progress.step;
  exit.phase = name_of(progress.phase);
}

std::string recorded_end(const std::filesystem::path& folder, int rank) {
  std::string end;
  try {
    for (const auto& event : RecordReader(record_file(folder, rank)).read_outline().events) {
      if (event.kind == "error" || (event.kind == "end" && end.empty())) end = event.kind;
    }
  } catch (const Error& error) {
    log::debug("how rank {} ended is not known from its record: {}", rank, error.what());
  }
  return end;
}

std::string last_words(const Relay& relay) {
  constexpr std::size_t kMax = 4000;
  const std::string text = relay.last_words();
  if (const auto mark = text.rfind(kErrorMark); mark != std::string::npos)
    return text.substr(mark + kErrorMark.size(), kMax);
  return text.size() > kMax ? text.substr(text.size() - kMax) : text;
}

}  // namespace ddp_doctor
