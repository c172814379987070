// SPDX-License-Identifier: BSD-3-Clause
#include "probes/libtorch/module/examination.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "lib/error.h"
#include "lib/record/worker.h"
#include "lib/version.h"
#include "probes/libtorch/ddp/observer.h"
#include "probes/libtorch/module/session.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;

// In the executable itself, where `ddp-doctor run` looks for it.
__attribute__((used)) const char* const kMark = kExaminedProgramMark;

std::string setting(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

int number_of(const char* name, int given, int otherwise) {
  if (given > 0) return given;
  const std::string told = setting(name);
  return told.empty() ? otherwise : std::max(1, std::atoi(told.c_str()));
}

// What the program was started as.
std::string own_name() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::string words{std::istreambuf_iterator<char>(in), {}};
  for (char& letter : words) letter = letter == '\0' ? ' ' : letter;
  while (words.ends_with(' ')) words.pop_back();
  return words;
}

std::string torch_version() {
  return fmt::format("{}.{}.{}", TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR, TORCH_VERSION_PATCH);
}

// process-PID.json: which process is which rank, for a launcher that started none of them itself.
void write_note(const fs::path& folder, const RecordHeader& header) {
  const nlohmann::json note = {{"schema_version", 1},
                               {"pid", ::getpid()},
                               {"parent", ::getppid()},
                               {"torch", torch_version()},
                               {"distributed", true},
                               {"rank", header.rank},
                               {"world_size", header.world_size},
                               {"steps", 0},
                               {"seen", nlohmann::json::array()}};
  const fs::path file = folder / fmt::format("process-{}.json", ::getpid());
  std::ofstream(file.string() + ".new") << note.dump();
  std::error_code ignored;
  fs::rename(file.string() + ".new", file, ignored);
}

std::terminate_handler handler_before = nullptr;

// An uncaught exception: its text is recorded before the process ends.
[[noreturn]] void note_and_terminate() {
  if (const auto& observer = training_observer(); observer && std::current_exception()) {
    try {
      std::rethrow_exception(std::current_exception());
    } catch (const c10::Error& error) {
      observer->raised(error.what_without_backtrace());
    } catch (const std::exception& error) {
      observer->raised(error.what());
    } catch (...) {
      observer->raised("the program threw an object that is not a std::exception");
    }
  }
  if (handler_before != nullptr) handler_before();
  std::abort();
}

void note_what_nobody_catches() {
  static const bool done = [] {
    handler_before = std::set_terminate(note_and_terminate);
    return true;
  }();
  static_cast<void>(done);
}

}  // namespace

Examination::Examination(const ProcessGroupPtr& group, const ExaminationSettings& given)
    : folder_(given.folder), exceptions_(std::uncaught_exceptions()) {
  const bool asked = !folder_.empty();
  if (!asked && setting("DDP_DOCTOR") != "0") folder_ = setting("DDP_DOCTOR_RECORD");
  if (folder_.empty()) return;
  SessionSettings settings;
  settings.folder = folder_;
  ScheduleSettings& schedule = settings.schedule;
  schedule.every = number_of("DDP_DOCTOR_EVERY", given.every, 10);
  schedule.warmup = number_of("DDP_DOCTOR_WARMUP", given.warmup, kWarmup);
  RecordHeader& header = settings.header;
  header.rank = group->getRank();
  header.world_size = group->getSize();
  header.probe = "cpp";
  header.program = setting("DDP_DOCTOR_PROGRAM");
  if (header.program.empty()) header.program = own_name();
  header.details = {
      {"torch_version", torch_version()},          {"tool_version", kVersion},
      {"pid", std::to_string(::getpid())},         {"every", std::to_string(schedule.every)},
      {"warmup", std::to_string(schedule.warmup)}, {"summary", "C++"}};
  try {
    if (unobserved_wrappers() > 0)
      throw Error(
          "its DistributedDataParallel was constructed before its Examination; construct the "
          "Examination right after the process group");
    session_ = Session::make(settings);
    write_note(settings.folder, header);
  } catch (const std::exception& error) {
    if (asked) throw;
    std::cerr << "ddp-doctor: rank " << header.rank << " is not examined: " << error.what()
              << std::endl;
    return;
  }
  training_observer() = session_;
  session_->watch_operations();
  note_what_nobody_catches();
}

Examination::~Examination() {
  if (!active()) return;
  session_->unwatch_operations();
  session_->finish(std::uncaught_exceptions() > exceptions_);
  if (training_observer() == session_) training_observer().reset();
}

void Examination::attach_module(ModuleState module, const std::string& name) {
  if (!name.empty()) module.type_name = name;
  session_->attach(module);
}

void Examination::attach(torch::optim::Optimizer& optimizer) {
  if (active()) session_->optimizer_made(optimizer);
}

at::Tensor Examination::step(torch::optim::Optimizer& optimizer, LossClosure closure) {
  return observe_step(optimizer, std::move(closure),
                      [&](LossClosure given) { return optimizer.step(std::move(given)); });
}

void Examination::placement(const at::Tensor& parameter, const MeshOfRanks& mesh,
                            const std::vector<std::string>& placements) {
  if (active()) session_->place(parameter, mesh.shape, mesh.names, mesh.ranks, placements);
}

std::vector<at::Tensor> Examination::batch(std::vector<at::Tensor> tensors) {
  if (!active() || !session_->in_parity()) return tensors;
  std::vector<at::Tensor> taken;
  for (const auto& value : session_->batch({tensors.begin(), tensors.end()}))
    taken.push_back(value.toTensor());
  return taken;
}

void Examination::loss(double value) {
  if (active()) session_->note_loss(value);
}

}  // namespace ddp_doctor
