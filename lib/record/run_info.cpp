// SPDX-License-Identifier: BSD-3-Clause
#include "lib/record/run_info.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lib/error.h"
#include "lib/record/plausible.h"
#include "lib/record/reader.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr int kRunInfoVersion = 1;
constexpr std::pair<RankExit::Kind, const char*> kKinds[] = {
    {RankExit::Kind::kUnknown, "unknown"},   {RankExit::Kind::kExited, "exited"},
    {RankExit::Kind::kSignaled, "signaled"}, {RankExit::Kind::kTimedOut, "timed-out"},
    {RankExit::Kind::kStopped, "stopped"},
};

RankExit::Kind kind_from(const std::string& name) {
  for (const auto& [kind, its_name] : kKinds) {
    if (name == its_name) return kind;
  }
  return RankExit::Kind::kUnknown;
}

ordered_json to_json(const RankExit& exit) {
  return {{"rank", exit.rank},
          {"kind", name_of(exit.kind)},
          {"code", exit.code},
          {"time_ns", exit.time_ns},
          {"step", exit.step},
          {"phase", exit.phase},
          {"last_words", exit.last_words}};
}

RankExit exit_from(const ordered_json& json) {
  return {json.at("rank"),      kind_from(json.at("kind")),
          json.at("code"),      plausible_time(json.at("time_ns")),
          json.at("step"),      json.at("phase"),
          json.at("last_words")};
}

// Neither file has fractions: one in a damaged file is no number at all, as it may be too large for
// an integer.
ordered_json whole_numbers(std::istream& in) {
  return ordered_json::parse(in, [](int, ordered_json::parse_event_t event, ordered_json& value) {
    if (event == ordered_json::parse_event_t::value && value.is_number_float()) value = nullptr;
    return true;
  });
}

// Atomically, since others may read it at the same time.
void write_at_once(const fs::path& file, const ordered_json& json) {
  const fs::path fresh = file.string() + ".new";
  {
    std::ofstream out(fresh);
    out << json.dump(2, ' ', false, ordered_json::error_handler_t::replace) << '\n';
    out.flush();
    if (!out)
      throw Error(
          fmt::format("{}: cannot be written (is the disk full?); free some disk space, or choose "
                      "another folder with --out",
                      fresh.string()));
  }
  std::error_code failure;
  fs::rename(fresh, file, failure);
  if (failure)
    throw Error(
        fmt::format("{}: {}; choose another folder with --out", file.string(), failure.message()));
}

ordered_json to_json(const StatedPlacements& stated) {
  ordered_json parameters = ordered_json::object();
  for (const auto& [pattern, kinds] : stated.parameters) parameters[pattern] = kinds;
  return {{"mesh_shape", stated.mesh_shape},
          {"mesh_dim_names", stated.mesh_dim_names},
          {"parameters", std::move(parameters)}};
}

StatedPlacements stated_from(const ordered_json& json) {
  StatedPlacements stated{json.at("mesh_shape").get<std::vector<int>>(),
                          json.at("mesh_dim_names").get<std::vector<std::string>>(),
                          {}};
  for (const auto& [pattern, kinds] : json.at("parameters").items())
    stated.parameters.emplace_back(pattern, kinds.get<StatedKinds>());
  return stated;
}

Purpose purpose_of(const std::string& name) {
  for (const Purpose purpose : {Purpose::kCompare, Purpose::kFix}) {
    if (name == name_of(purpose)) return purpose;
  }
  return Purpose::kRun;
}

}  // namespace

Ending ending_of(const std::string& name) {
  for (const Ending ending : {Ending::kInterrupted, Ending::kStopAfter, Ending::kFailFast}) {
    if (name == name_of(ending)) return ending;
  }
  return Ending::kOwn;
}

const char* name_of(Ending ending) {
  switch (ending) {
    case Ending::kOwn:
      return "own";
    case Ending::kInterrupted:
      return "interrupted";
    case Ending::kStopAfter:
      return "stop-after";
    case Ending::kFailFast:
      return "fail-fast";
  }
  return "";
}

bool fell(const RankExit& exit) {
  return exit.kind == RankExit::Kind::kSignaled ||
         (exit.kind == RankExit::Kind::kExited && exit.code != 0);
}

const char* name_of(RankExit::Kind kind) {
  for (const auto& [its_kind, name] : kKinds) {
    if (kind == its_kind) return name;
  }
  return "unknown";
}

const char* name_of(Purpose purpose) {
  switch (purpose) {
    case Purpose::kRun:
      return "run";
    case Purpose::kCompare:
      return "compare";
    case Purpose::kFix:
      return "fix";
  }
  return "";
}

void save_run_info(const fs::path& folder, const RunInfo& run) {
  ordered_json json = {{"schema_version", kRunInfoVersion},
                       {"index", run.index},
                       {"purpose", name_of(run.purpose)},
                       {"repeats", run.repeats},
                       {"is_script", run.is_script},
                       {"program", run.program},
                       {"strategy", run.strategy},
                       {"world_size", run.world_size},
                       {"steps", run.steps_wanted},
                       {"settings", run.settings},
                       {"exits", ordered_json::array()},
                       {"ending", name_of(run.ending)},
                       {"ended_ns", run.ended_ns},
                       {"notes", run.notes},
                       {"failure", run.failure}};
  for (const auto& exit : run.exits) json["exits"].push_back(to_json(exit));
  if (!run.placement.empty()) json["placement"] = to_json(run.placement);
  if (run.tried) {
    const auto& [finding, change] = *run.tried;
    json["tried"] = {{"finding", finding},      {"file", change.file},   {"line", change.line},
                     {"before", change.before}, {"after", change.after}, {"text", change.text}};
  }
  write_at_once(folder / "run.json", json);
}

namespace {

// The lowest rank's record in `folder`; empty if there is none.
fs::path first_record(const fs::path& folder) {
  fs::path first;
  std::error_code failure;
  for (fs::directory_iterator entry(folder, failure), end; entry != end; entry.increment(failure)) {
    const fs::path& file = entry->path();
    const bool record =
        file.extension() == ".sqlite" && file.filename().string().starts_with("rank-");
    if (record && (first.empty() || file < first)) first = file;
  }
  return first;
}

// Records without a launcher: those of a test that examines its own ranks.
RunInfo run_of(const fs::path& record) {
  const RecordHeader header = RecordReader(record).header();
  RunInfo run;
  run.program = header.program;
  run.world_size = header.world_size;
  return run;
}

// The number of ranks if only a launcher knew it, and ddp-doctor ended before the launcher.
std::optional<int> recorded_world_size(const fs::path& folder) {
  const fs::path record = first_record(folder);
  if (record.empty()) return {};
  try {
    return RecordReader(record).header().world_size;
  } catch (const Error&) {  // Timeline::load will report the error
    return {};
  }
}

}  // namespace

RunInfo load_run_info(const fs::path& folder) {
  const fs::path file = folder / "run.json";
  std::ifstream in(file);
  if (const fs::path record = in ? fs::path() : first_record(folder); !record.empty())
    return run_of(record);
  if (!in)
    throw Error(fmt::format("{}: not found; give a folder that `ddp-doctor run --out` wrote",
                            file.string()));
  try {
    const auto json = whole_numbers(in);
    if (const int version = json.at("schema_version"); version > kRunInfoVersion) {
      throw Error(
          fmt::format("{}: written by a newer ddp-doctor (schema {}, this build reads up to {}); "
                      "update ddp-doctor",
                      file.string(), version, kRunInfoVersion));
    }
    RunInfo run;
    run.index = json.at("index");
    run.program = json.at("program");
    run.strategy = json.at("strategy");
    run.world_size = json.at("world_size");
    run.steps_wanted = json.at("steps");
    run.settings = json.at("settings").get<std::map<std::string, std::string>>();
    for (const auto& exit : json.at("exits")) run.exits.push_back(exit_from(exit));
    // Not in records of the first version.
    if (json.contains("notes")) run.notes = json.at("notes").get<std::vector<std::string>>();
    if (json.contains("failure")) run.failure = json.at("failure");
    run.purpose = purpose_of(json.value("purpose", ""));
    run.repeats = json.value("repeats", -1);
    run.ending = ending_of(json.value("ending", ""));
    run.ended_ns = plausible_time(json.value("ended_ns", std::int64_t{0}));
    run.is_script = json.value("is_script", run.strategy != "as-is");
    if (json.contains("placement")) run.placement = stated_from(json.at("placement"));
    if (json.contains("tried")) {
      const auto& tried = json.at("tried");
      run.tried = {tried.at("finding"),
                   {tried.at("file"), tried.at("line"), tried.at("before"), tried.at("after"),
                    tried.at("text")}};
    }
    if (run.world_size < 1)
      throw Error(fmt::format("{}: world_size is {}", file.string(), run.world_size));
    if (run.exits.empty()) run.world_size = recorded_world_size(folder).value_or(run.world_size);
    return run;
  } catch (const nlohmann::json::exception& error) {
    throw Error(fmt::format(
        "{}: not a run of ddp-doctor ({}); give a folder that `ddp-doctor run --out` wrote",
        file.string(), error.what()));
  }
}

void save_rank_exit(const fs::path& folder, const RankExit& exit) {
  write_at_once(folder / fmt::format("rank-{:05}.exit", exit.rank), to_json(exit));
}

std::vector<RankExit> load_rank_exits(const fs::path& folder) {
  std::vector<RankExit> exits;
  std::error_code ignored;
  for (fs::directory_iterator entry(folder, ignored), end; entry != end; entry.increment(ignored)) {
    if (entry->path().extension() != ".exit") continue;
    try {
      std::ifstream in(entry->path());
      exits.push_back(exit_from(whole_numbers(in)));
    } catch (const nlohmann::json::exception&) {
    }
  }
  std::sort(exits.begin(), exits.end(),
            [](const RankExit& a, const RankExit& b) { return a.rank < b.rank; });
  return exits;
}

std::vector<fs::path> run_folders(const fs::path& examination) {
  if (fs::exists(examination / "run.json") || !first_record(examination).empty())
    return {examination};
  std::vector<std::pair<int, fs::path>> found;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(examination, failure)) {
    if (fs::exists(entry.path() / "run.json"))
      found.emplace_back(load_run_info(entry.path()).index, entry.path());
  }
  if (failure)
    throw Error(fmt::format("{}: {}; give a folder that `ddp-doctor run --out` wrote",
                            examination.string(), failure.message()));
  if (found.empty())
    throw Error(fmt::format("{}: contains no run; give a folder that `ddp-doctor run --out` wrote",
                            examination.string()));
  std::sort(found.begin(), found.end());
  std::vector<fs::path> folders;
  for (auto& [index, folder] : found) folders.push_back(std::move(folder));
  return folders;
}

}  // namespace ddp_doctor
