// SPDX-License-Identifier: BSD-3-Clause
// The cost per event on a rank: a phase in the progress map, a call in the call log. Through the
// C++ classes, and through the C API that other languages' probes use.

#include <benchmark/benchmark.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "bench/iterations.h"
#include "lib/record/call_log.h"
#include "lib/record/progress.h"
#include "lib/record/writer.h"
#include "lib/recorder/probe_api.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "ddp-doctor-bench-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

LoggedCall a_call() {
  LoggedCall call;
  call.position = 1;
  call.step = 7;
  call.numel = 1024;
  call.line = 42;
  call.op = "all_reduce";
  call.reduce = "sum";
  call.dtype = "float32";
  call.moment = "before-step";
  call.target = "gradient of transformer.h.11.mlp.c_proj.weight";
  call.file = "/home/user/project/train.py";
  return call;
}

void progress_map(benchmark::State& state) {
  const Folder folder;
  ProgressWriter progress(progress_file(folder.path(), 0));
  std::int64_t step = 0;
  for (auto _ : state) progress.enter(Phase::kForward, ++step);
}

void call_log(benchmark::State& state) {
  const Folder folder;
  CallLog log(calls_file(folder.path(), 0));
  const LoggedCall call = a_call();
  for (auto _ : state) log.end(log.begin(call));
}

void api_call_log(benchmark::State& state) {
  const Folder folder;
  auto* record = ddpd_open(
      folder.path().c_str(),
      R"({"rank": 0, "world_size": 1, "probe": "bench", "program": "", "details": {}})", 0);
  if (record == nullptr) {
    state.SkipWithError(ddpd_error());
    return;
  }
  const LoggedCall call = a_call();
  for (auto _ : state) {
    ddpd_call_ends(record,
                   ddpd_call_begins(record, call.step, 1, call.op.c_str(), call.reduce.c_str(),
                                    call.dtype.c_str(), call.numel, "", call.moment.c_str(),
                                    call.target.c_str(), call.file.c_str(), call.line));
  }
  ddpd_close(record);
}

BENCHMARK(progress_map)->Apply(as_often_as_asked);
BENCHMARK(call_log)->Apply(as_often_as_asked);
BENCHMARK(api_call_log)->Apply(as_often_as_asked);

}  // namespace
}  // namespace ddp_doctor
