#include "lib/record/probe_api.h"

#include <unistd.h>

#include <array>
#include <exception>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "lib/digest/elements.h"
#include "lib/digest/strides.h"
#include "lib/error.h"
#include "lib/record/call_log.h"
#include "lib/record/progress.h"
#include "lib/record/writer.h"
#include "lib/version.h"

using nlohmann::json;
using namespace ddp_doctor;

namespace {

thread_local std::string last_error;

constexpr int kKeep = DDPD_KEEP | DDPD_KEEP_LAST | DDPD_KEEP_WANTED;

// Runs `work`; nothing that it throws leaves this file.
template <class Work>
int guarded(const Work& work) noexcept {
  try {
    work();
    return 0;
  } catch (const std::exception& error) {
    try {
      last_error = error.what();
    } catch (...) {
    }
  } catch (...) {
  }
  return 1;
}

template <class T>
std::optional<T> optional_of(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return {};
  return found->get<T>();
}

TensorInfo tensor_of(const json& object) {
  TensorInfo tensor;
  tensor.id = object.at("id");
  tensor.name = object.at("name");
  tensor.kind = object.at("kind");
  tensor.dtype = object.at("dtype");
  tensor.sizes = object.at("sizes").get<std::vector<std::int64_t>>();
  tensor.numel = 1;
  for (const auto size : tensor.sizes) tensor.numel *= size;
  tensor.trainable = object.at("trainable");
  tensor.ddp_index = optional_of<int>(object, "ddp_index");
  tensor.module = object.value("module", "");
  tensor.wrapper = optional_of<int>(object, "wrapper");
  return tensor;
}

// A row of numbers: shorter than an object, as there is one per parameter and step. NaN-free.
Usage usage_of(const json& row) {
  Usage usage;
  const auto maybe = [&](std::size_t i) -> std::optional<bool> {
    if (row.at(i).is_null()) return {};
    return row.at(i).get<int>() != 0;
  };
  usage.tensor = row.at(0);
  usage.used = row.at(1).get<int>() != 0;
  usage.reached = maybe(2);
  usage.in_output = maybe(3);
  usage.frozen = row.at(4).get<int>() != 0;
  usage.arrivals = row.at(5);
  usage.last_backward = row.at(6);
  usage.replaced = row.at(7).get<int>() != 0;
  usage.in_optimizer = row.at(8).get<int>() != 0;
  usage.assigned = row.at(9).get<int>() != 0;
  return usage;
}

Collective collective_of(const json& o) {
  return {o.at("op"),     o.at("reduce"), o.at("dtype"), o.at("numel"), o.at("group"),
          o.at("moment"), o.at("target"), o.at("file"),  o.at("line"),  o.at("count")};
}

StepRecord step_of(const json& o) {
  StepRecord step;
  step.step = o.at("step");
  // JSON has no NaN: Python writes NaN and Infinity, which this parser refuses, so they come as
  // text.
  if (const auto loss = o.find("loss"); loss != o.end() && !loss->is_null())
    step.loss = loss->is_string() ? std::stod(loss->get<std::string>()) : loss->get<double>();
  step.started_ns = o.value("started_ns", std::int64_t{0});
  step.duration_ns = o.value("duration_ns", std::int64_t{0});
  step.probe_ns = o.value("probe_ns", std::int64_t{0});
  step.backwards = o.value("backwards", 0);
  step.unsynchronized_backwards = o.value("unsynchronized_backwards", 0);
  step.forwards_through_wrapper = o.value("forwards_through_wrapper", 0);
  step.forwards_around_wrapper = o.value("forwards_around_wrapper", 0);
  step.collectives = o.value("collectives", 0);
  step.collective_bytes = o.value("collective_bytes", std::int64_t{0});
  step.optimizer = o.value("optimizer", 0);
  step.examined = o.value("examined", true);
  step.skipped = o.value("skipped", false);
  step.scale = optional_of<double>(o, "scale");
  step.trace = o.value("trace", "");
  if (o.contains("usages")) {
    for (const auto& row : o.at("usages")) step.usages.push_back(usage_of(row));
  }
  if (o.contains("calls")) {
    for (const auto& call : o.at("calls")) step.calls.push_back(collective_of(call));
  }
  return step;
}

RecordHeader header_of(const json& o) {
  RecordHeader header;
  header.rank = o.at("rank");
  header.world_size = o.at("world_size");
  header.probe = o.at("probe");
  header.program = o.at("program");
  header.details = o.at("details").get<std::map<std::string, std::string>>();
  return header;
}

}  // namespace

struct ddpd_record {
  ddpd_record(const std::filesystem::path& folder, const RecordHeader& header, std::int64_t budget)
      : writer(folder, header),
        progress(progress_file(folder, header.rank)),
        calls(calls_file(folder, header.rank)),
        budget(budget) {}

  void observe(Stage stage, int what, int tensor, const TensorView& view) {
    // Digests take the time, so they are taken outside the lock.
    std::vector<double> values;
    if ((what & DDPD_SAMPLE) != 0) values = sample(view);
    std::optional<TensorDigest> seen;
    if ((what & DDPD_DIGEST) != 0) {
      const auto before = stage == Stage::kGradient ? reduced(tensor, values) : std::nullopt;
      seen = before ? digest(view, *before) : digest(view);
    }
    const std::lock_guard lock(mutex);
    const std::pair key(tensor, stage);
    if (seen) pending.observations[key] = {tensor, stage, *seen};
    if ((what & DDPD_SAMPLE) != 0) pending.samples[key] = {tensor, stage, std::move(values)};
    if ((what & kKeep) != 0) keep(key, what, view);
  }

  // All the values that the step needs, or none: half of them would tell nothing.
  bool may_keep(int what, std::int64_t bytes) {
    const std::lock_guard lock(mutex);
    return (what & DDPD_KEEP_WANTED) != 0 ||
           kept + bytes <= ((what & DDPD_KEEP_LAST) != 0 ? budget : budget / 2);
  }

  std::mutex mutex;
  RecordWriter writer;
  ProgressWriter progress;
  CallLog calls;
  std::map<std::string, std::int64_t> positions;  // by group: of its last paired call
  const pid_t owner = ::getpid();
  std::vector<TensorInfo> tensors;  // by id
  // What was observed since the last step was written.
  struct Pending {
    std::map<std::pair<int, Stage>, Observation> observations;
    std::map<std::pair<int, Stage>, Sample> samples;
    std::map<std::pair<int, Stage>, KeptValues> values;
  };
  Pending pending;
  Pending aside;
  std::int64_t budget;
  std::int64_t kept = 0;

 private:
  // What the reducer left of this gradient, if the program does not seem to have changed it since.
  std::optional<TensorDigest> reduced(int tensor, const std::vector<double>& values) {
    const std::lock_guard lock(mutex);
    const std::pair key(tensor, Stage::kReducedGradient);
    const auto seen = pending.observations.find(key);
    const auto sampled = pending.samples.find(key);
    if (seen == pending.observations.end() || sampled == pending.samples.end()) return {};
    if (sampled->second.values != values) return {};
    return seen->second.digest;
  }

  void keep(const std::pair<int, Stage>& key, int what, const TensorView& view) {
    std::int64_t bytes = static_cast<std::int64_t>(element_size(view.dtype));
    for (const auto size : view.sizes) bytes *= size;
    if ((what & DDPD_KEEP_WANTED) == 0) {
      if (kept + bytes > ((what & DDPD_KEEP_LAST) != 0 ? budget : budget / 2)) return;
      kept += bytes;
    }
    KeptValues copy{key.first, key.second, {}};
    copy.bytes.resize(static_cast<std::size_t>(bytes));
    if (bytes > 0)
      Gather(view).next(reinterpret_cast<std::byte*>(copy.bytes.data()), copy.bytes.size());
    pending.values[key] = std::move(copy);
  }
};

const char* ddpd_version(void) { return kVersion; }

const char* ddpd_error(void) { return last_error.c_str(); }

ddpd_record* ddpd_open(const char* folder, const char* header, int64_t values_budget) {
  ddpd_record* record = nullptr;
  guarded([&] { record = new ddpd_record(folder, header_of(json::parse(header)), values_budget); });
  return record;
}

void ddpd_close(ddpd_record* record) {
  if (record == nullptr) return;
  if (record->owner != ::getpid()) return;  // the parent's: its locks and its log are not ours
  guarded([&] { record->writer.close(); });
  delete record;
}

int ddpd_tensors(ddpd_record* record, const char* tensors) {
  return guarded([&] {
    std::vector<TensorInfo> described;
    for (const auto& object : json::parse(tensors)) described.push_back(tensor_of(object));
    const std::lock_guard lock(record->mutex);
    record->writer.write_tensors(described);
    for (auto& tensor : described) {
      const auto id = static_cast<std::size_t>(tensor.id);
      if (record->tensors.size() <= id) record->tensors.resize(id + 1);
      record->tensors[id] = std::move(tensor);
    }
  });
}

int ddpd_observe(ddpd_record* record, int stage, int what, int64_t count, const int32_t* tensors,
                 const void* const* data) {
  return guarded([&] {
    struct Known {
      DType dtype;
      std::int64_t numel;
    };
    std::vector<Known> known;
    std::int64_t bytes = 0;
    {
      const std::lock_guard lock(record->mutex);
      for (std::int64_t i = 0; i < count; ++i) {
        const TensorInfo& info = record->tensors.at(static_cast<std::size_t>(tensors[i]));
        known.push_back({dtype_from_name(info.dtype), info.numel});
        bytes += info.numel * static_cast<std::int64_t>(element_size(known.back().dtype));
      }
    }
    if (!record->may_keep(what, bytes)) what &= ~kKeep;
    constexpr std::int64_t kStride[] = {1};
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t sizes[] = {known[static_cast<std::size_t>(i)].numel};
      record->observe(static_cast<Stage>(stage), what, tensors[i],
                      {data[i], known[static_cast<std::size_t>(i)].dtype, sizes, kStride});
    }
  });
}

int ddpd_observe_view(ddpd_record* record, int stage, int what, int32_t tensor, const void* data,
                      const char* dtype, int dimensions, const int64_t* sizes,
                      const int64_t* strides) {
  return guarded([&] {
    const auto count = static_cast<std::size_t>(dimensions);
    record->observe(static_cast<Stage>(stage), what, tensor,
                    {data, dtype_from_name(dtype), {sizes, count}, {strides, count}});
  });
}

void ddpd_forget(ddpd_record* record) {
  const std::lock_guard lock(record->mutex);
  record->pending = {};
}

void ddpd_swap(ddpd_record* record) {
  const std::lock_guard lock(record->mutex);
  std::swap(record->pending, record->aside);
}

int ddpd_step(ddpd_record* record, const char* step) {
  return guarded([&] {
    StepRecord whole = step_of(json::parse(step));
    const std::lock_guard lock(record->mutex);
    auto seen = std::exchange(record->pending, {});
    for (auto& [key, observation] : seen.observations) whole.observations.push_back(observation);
    for (auto& [key, sample] : seen.samples) whole.samples.push_back(std::move(sample));
    for (auto& [key, values] : seen.values) whole.values.push_back(std::move(values));
    record->writer.write_step(whole);
  });
}

int ddpd_write(ddpd_record* record, const char* kind, const char* text) {
  return guarded([&] {
    const json o = json::parse(text);
    const std::string what = kind;
    const std::lock_guard lock(record->mutex);
    if (what == "event") {
      record->writer.write_event(
          {o.at("step"), o.at("time_ns"), o.at("kind"), o.at("phase"), o.at("text")});
    } else if (what == "site") {
      record->writer.write_site(
          {o.at("what"), o.at("step"), o.at("file"), o.at("line"), o.at("via")});
    } else if (what == "fact") {
      record->writer.write_fact({o.at("step"), o.at("subject"), o.at("key"), o.at("value").dump()});
    } else if (what == "ddp_fields") {
      std::vector<DdpField> fields;
      for (const auto& f : o)
        fields.push_back(
            {f.at("moment"), f.at("key"), f.at("value"), f.at("is_integer"), f.at("wrapper")});
      record->writer.write_ddp_fields(fields);
    } else {
      throw Error("there is nothing of kind '" + what + "' to write");
    }
  });
}

int64_t ddpd_call_begins(ddpd_record* record, int64_t step, int paired, const char* op,
                         const char* reduce, const char* dtype, int64_t numel, const char* group,
                         const char* moment, const char* target, const char* file, int line) {
  std::int64_t number = 0;
  guarded([&] {
    const std::lock_guard lock(record->mutex);
    LoggedCall call;
    call.position = paired != 0 ? ++record->positions[group] : 0;
    call.step = step;
    call.op = op;
    call.reduce = reduce;
    call.dtype = dtype;
    call.numel = numel;
    call.group = group;
    call.moment = moment;
    call.target = target;
    call.file = file;
    call.line = line;
    number = record->calls.begin(call);
  });
  return number;
}

void ddpd_call_ends(ddpd_record* record, int64_t number) {
  const std::lock_guard lock(record->mutex);
  if (number > 0) record->calls.end(number);
}

void ddpd_call_resumes(ddpd_record* record, int64_t number) {
  const std::lock_guard lock(record->mutex);
  if (number > 0) record->calls.resume(number);
}

void ddpd_enter(ddpd_record* record, int phase, int64_t step) {
  record->progress.enter(static_cast<Phase>(phase), step);
}

int64_t ddpd_wanted_step(ddpd_record* record) { return record->progress.wanted_step(); }
