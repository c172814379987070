// SPDX-License-Identifier: BSD-3-Clause
#include "tool/watch/run_watch.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "lib/diagnose/calls.h"
#include "lib/diagnose/diagnose.h"
#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"
#include "lib/log.h"
#include "lib/record/call_log.h"
#include "lib/record/progress.h"
#include "lib/record/reader.h"
#include "lib/record/writer.h"
#include "lib/report/render/render.h"
#include "tool/system/interrupt.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr auto kWatchEvery = milliseconds(200);
constexpr auto kBetweenDiagnoses = seconds(1);
constexpr int kRestPerCost = 100;
constexpr int kMoreSteps = 4;  // the next diagnosis waits for a quarter more steps
// Ranks of a command, some of which may run on other machines: no further one appears.
constexpr auto kAppeared = seconds(2);
// --fail-fast, for the other launchers of a job: ended together, no rank fails for want of another.
constexpr char kFailFastFile[] = "fail-fast";
constexpr auto kEndTogether = milliseconds(500);

nanoseconds processor_time() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return seconds(time.tv_sec) + nanoseconds(time.tv_nsec);
}

bool is_over(const Progress& progress) {
  return progress.phase == Phase::kFinished || progress.phase == Phase::kUnexamined;
}

std::string key_of(const Finding& finding) {
  return finding.rule + (finding.parameters.empty() ? "" : finding.parameters.front().name);
}

std::string extent_of(const Finding& finding) {
  std::string text = ranks_of(finding.ranks);
  if (finding.first_step) text += fmt::format(", from step {}", *finding.first_step);
  if (!finding.parameters.empty()) text += "; " + list_of(finding.parameters, 3);
  if (finding.where) text += fmt::format("; at {}:{}", finding.where->file, finding.where->line);
  return text;
}

}  // namespace

RunWatch::RunWatch(fs::path folder, const RunInfo& run, const ProgramOptions& options,
                   int ranks_here, bool reports, std::ostream& err)
    : folder_(std::move(folder)),
      run_(run),
      stop_after_(options.stop_after),
      fail_fast_(options.fail_fast),
      reports_(reports),
      announces_(reports && run.index == 0 && run.purpose != Purpose::kCompare),
      wanted_(options.wanted),
      err_(err),
      replicas_(folder_),
      ranks_expected_(ranks_here) {}

RunWatch::~RunWatch() {
  if (diagnosis_.valid()) diagnosis_.wait();
}

void RunWatch::look() noexcept {
  if (reports_) replicas_.look();
  const auto now = Clock::now();
  if (now - looked_at_ < kWatchEvery) return;
  looked_at_ = now;
  try {
    look_at_ranks();
    if (announces_) diagnose_when_due();
    if (reports_ && InterruptGuard::state_wanted()) print_state();
  } catch (const std::exception& error) {
    log::debug("watching the run failed and will be tried again: {}", error.what());
  }
}

std::optional<Ending> RunWatch::ends() {
  if (fail_fast_) {
    std::error_code none;
    const auto found = fs::last_write_time(folder_ / kFailFastFile, none);
    if (!none && fs::file_time_type::clock::now() - found > kEndTogether) return Ending::kFailFast;
  }
  if (stop_after_ > 0 && reached_) return Ending::kStopAfter;
  return {};
}

void RunWatch::look_at_ranks() {
  std::vector<int> ranks;
  std::error_code ignored;
  for (fs::directory_iterator entry(folder_, ignored), end; entry != end;
       entry.increment(ignored)) {
    int rank = 0;
    const std::string name = entry->path().filename().string();
    if (name.ends_with(".progress") && std::sscanf(name.c_str(), "rank-%d.", &rank) == 1)
      ranks.push_back(rank);
  }
  if (ranks.size() != ranks_.size()) appeared_at_ = looked_at_;
  ranks_ = std::move(ranks);
  std::sort(ranks_.begin(), ranks_.end());
  if (ranks_.empty()) return;
  std::int64_t over = std::numeric_limits<std::int64_t>::max();
  bool reached = true;
  for (const int rank : ranks_) {
    const Progress progress = read_progress(progress_file(folder_, rank));
    over = std::min(over, progress.step - 1);
    reached = reached && (progress.step > stop_after_ || is_over(progress));
  }
  const bool present = all_present();
  over_ = present ? over : 0;
  reached_ = present && reached;
}

// All ranks of this machine have begun.
bool RunWatch::all_present() {
  if (ranks_expected_ == 0 && fs::exists(record_file(folder_, ranks_.front())))
    ranks_expected_ = RecordReader(record_file(folder_, ranks_.front())).header().world_size;
  return static_cast<int>(ranks_.size()) == ranks_expected_ ||
         looked_at_ - appeared_at_ > kAppeared;
}

void RunWatch::diagnose_when_due() {
  if (diagnosis_.valid()) {
    if (diagnosis_.wait_for(seconds(0)) != std::future_status::ready) return;
    const Diagnosed done = diagnosis_.get();
    next_diagnosis_ =
        looked_at_ + std::max<nanoseconds>(kBetweenDiagnoses, kRestPerCost * done.cost);
    next_step_ = diagnosed_until_ + std::max<std::int64_t>(1, diagnosed_until_ / kMoreSteps);
    announce(done);
  }
  if (over_ < next_step_ || looked_at_ < next_diagnosis_) return;
  diagnosed_until_ = over_;
  diagnosis_ = std::async(std::launch::async, [this, until = over_] {
    setpriority(PRIO_PROCESS, 0, 19);  // of this thread, on Linux, and of those that it starts
    const auto before = processor_time();
    Diagnosed done = diagnosed(until);
    // Records lose old steps while they are read (thinning.h): twice the same is no accident.
    if (!done.findings.empty()) {
      const auto again = diagnosed(until);
      std::erase_if(done.findings, [&](const Finding& finding) {
        return std::none_of(again.findings.begin(), again.findings.end(),
                            [&](const Finding& other) { return key_of(other) == key_of(finding); });
      });
    }
    done.cost = processor_time() - before;
    return done;
  });
}

RunWatch::Diagnosed RunWatch::diagnosed(std::int64_t until) const {
  try {
    RunInfo run = run_;
    run.world_size = RecordReader(record_file(folder_, ranks_.front())).header().world_size;
    return {lasting(diagnose(Timeline::load(folder_, run, until)).findings), {}};
  } catch (const std::exception& error) {
    log::debug("a diagnosis of the running job failed: {}", error.what());
    return {};
  }
}

void RunWatch::announce(const Diagnosed& diagnosed) {
  for (const auto& finding : diagnosed.findings) {
    if ((wanted_ && !wanted_(finding)) || !announced_.insert(key_of(finding)).second) continue;
    if (fail_fast_ && finding.severity == Severity::kError)
      std::ofstream(folder_ / kFailFastFile) << finding.rule << '\n';
    lines_.push_back(fmt::format("{} {}: {}, certain; {}", finding.rule, finding.name,
                                 name_of(finding.severity), extent_of(finding)));
    const Rule* rule = find_rule(finding.rule);
    err_ << fmt::format("ddp-doctor: {}\nddp-doctor:   {}; {}\n", lines_.back(),
                        rule == nullptr ? finding.name : rule->headline,
                        fail_fast_ && finding.severity == Severity::kError
                            ? "the run is ended (--fail-fast)"
                            : "the report follows at the end of the run")
         << std::flush;
    auto line = finding_as_json(finding);
    line["seen_until"] = diagnosed_until_;
    std::ofstream(folder_.parent_path() / "findings.jsonl", std::ios::app)
        << line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << '\n';
  }
}

void RunWatch::print_state() {
  const nanoseconds now = Clock::now().time_since_epoch();
  std::string text = ranks_.empty() ? "ddp-doctor: no rank has begun\n" : "";
  for (const int rank : ranks_) {
    const Progress progress = read_progress(progress_file(folder_, rank));
    const auto calls = read_calls(calls_file(folder_, rank));
    const LoggedCall* waits = waits_in(calls);
    const auto last = std::find_if(calls.rbegin(), calls.rend(),
                                   [](const LoggedCall& call) { return call.position > 0; });
    std::string call;
    if (waits != nullptr) {
      call = "; waits in " + name_of(*waits);
    } else if (last != calls.rend()) {
      call = "; last collective: " + name_of(*last);
    }
    text += fmt::format(
        "ddp-doctor: rank {}: step {}, {}, for {:.1f} s{}\n", rank, progress.step,
        name_of(progress.phase),
        std::chrono::duration<double>(now - nanoseconds(progress.changed_ns)).count(), call);
  }
  text += lines_.empty() ? "ddp-doctor: nothing found so far that is certain\n" : "";
  for (const auto& line : lines_) text += "ddp-doctor: " + line + "\n";
  err_ << text << std::flush;
}

}  // namespace ddp_doctor
