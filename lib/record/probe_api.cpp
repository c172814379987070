// SPDX-License-Identifier: BSD-3-Clause
#include "lib/record/probe_api.h"

#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "lib/error.h"
#include "lib/record/packed.h"
#include "lib/record/rank_writer.h"
#include "lib/version.h"

using nlohmann::json;
using namespace ddp_doctor;

namespace {

thread_local std::string last_error;

// Runs `work`; no exception leaves this file.
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

struct ddpd_record : RankWriter {
  using RankWriter::RankWriter;
};

static_assert(take::kDigest == DDPD_DIGEST && take::kSample == DDPD_SAMPLE &&
              take::kKeep == DDPD_KEEP && take::kKeepLast == DDPD_KEEP_LAST &&
              take::kKeepWanted == DDPD_KEEP_WANTED);
static_assert(usage::kUsed == DDPD_USED && usage::kReachedKnown == DDPD_REACHED_KNOWN &&
              usage::kReached == DDPD_REACHED && usage::kInOutputKnown == DDPD_IN_OUTPUT_KNOWN &&
              usage::kInOutput == DDPD_IN_OUTPUT && usage::kFrozen == DDPD_FROZEN &&
              usage::kReplaced == DDPD_REPLACED && usage::kInOptimizer == DDPD_IN_OPTIMIZER &&
              usage::kAssigned == DDPD_ASSIGNED);

const char* ddpd_version(void) { return kVersion; }

const char* ddpd_error(void) { return last_error.c_str(); }

ddpd_record* ddpd_open(const char* folder, const char* header, int64_t values_budget) {
  ddpd_record* record = nullptr;
  guarded([&] { record = new ddpd_record(folder, header_of(json::parse(header)), values_budget); });
  return record;
}

void ddpd_close(ddpd_record* record) {
  if (record == nullptr || !record->is_own()) return;
  guarded([&] { record->close(); });
  delete record;
}

int ddpd_tensors(ddpd_record* record, const char* tensors) {
  return guarded([&] {
    std::vector<TensorInfo> described;
    for (const auto& object : json::parse(tensors)) described.push_back(tensor_of(object));
    record->describe(described);
  });
}

int ddpd_observe(ddpd_record* record, int stage, int what, int64_t count, const int32_t* tensors,
                 const void* const* data) {
  return guarded([&] {
    std::vector<RankWriter::Extent> extents;
    std::int64_t bytes = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      extents.push_back(record->extent_of(tensors[i]));
      const auto& [dtype, numel] = extents.back();
      bytes += numel * static_cast<std::int64_t>(element_size(dtype));
    }
    what = record->affordable(what, bytes);
    constexpr std::int64_t kStride[] = {1};
    for (std::int64_t i = 0; i < count; ++i) {
      const auto& [dtype, numel] = extents[static_cast<std::size_t>(i)];
      const std::int64_t sizes[] = {numel};
      record->observe(static_cast<Stage>(stage), what, tensors[i],
                      {data[i], dtype, sizes, kStride});
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

int ddpd_observe_on_device(ddpd_record* record, int stage, int what, int device, void* stream,
                           int64_t count, const int32_t* tensors, const void* const* data) {
  return guarded([&] {
    std::vector<RankWriter::OnDevice> list;
    for (std::int64_t i = 0; i < count; ++i) list.push_back({tensors[i], data[i]});
    record->observe_on_device(static_cast<Stage>(stage), what, device, stream, list);
  });
}

int ddpd_loss_on_device(ddpd_record* record, int device, void* stream, const void* data,
                        const char* dtype) {
  return guarded(
      [&] { record->observe_loss_on_device(device, stream, data, dtype_from_name(dtype)); });
}

int ddpd_usages(ddpd_record* record, int64_t count, const int32_t* numbers) {
  return guarded([&] {
    std::vector<Usage> usages;
    usages.reserve(static_cast<std::size_t>(count));
    for (const int32_t* at = numbers; at < numbers + 4 * count; at += 4)
      usages.push_back(usage::from_flags(at[0], static_cast<unsigned>(at[1]), at[2], at[3]));
    record->set_usages(std::move(usages));
  });
}

void ddpd_forget(ddpd_record* record) { record->forget(); }

void ddpd_swap(ddpd_record* record) { record->swap(); }

int ddpd_step(ddpd_record* record, const char* step) {
  return guarded([&] { record->write_step(step_of(json::parse(step))); });
}

int ddpd_write(ddpd_record* record, const char* kind, const char* text) {
  return guarded([&] {
    const json o = json::parse(text);
    const std::string what = kind;
    if (what == "event") {
      record->write_event(
          {o.at("step"), o.at("time_ns"), o.at("kind"), o.at("phase"), o.at("text")});
    } else if (what == "site") {
      record->write_site({o.at("what"), o.at("step"), o.at("file"), o.at("line"), o.at("via")});
    } else if (what == "fact") {
      record->write_fact({o.at("step"), o.at("subject"), o.at("key"), o.at("value").dump()});
    } else if (what == "ddp_fields") {
      std::vector<DdpField> fields;
      for (const auto& f : o)
        fields.push_back(
            {f.at("moment"), f.at("key"), f.at("value"), f.at("is_integer"), f.at("wrapper")});
      record->write_ddp_fields(fields);
    } else {
      throw Error("unknown kind '" + what + "'");
    }
  });
}

int64_t ddpd_call_begins(ddpd_record* record, int64_t step, int paired, const char* op,
                         const char* reduce, const char* dtype, int64_t numel, const char* group,
                         const char* moment, const char* target, const char* file, int line) {
  std::int64_t number = 0;
  guarded([&] {
    LoggedCall call;
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
    number = record->call_begins(std::move(call), paired != 0);
  });
  return number;
}

void ddpd_call_ends(ddpd_record* record, int64_t number) { record->call_ends(number); }

void ddpd_call_resumes(ddpd_record* record, int64_t number) { record->call_resumes(number); }

void ddpd_enter(ddpd_record* record, int phase, int64_t step) {
  record->enter(static_cast<Phase>(phase), step);
}

int64_t ddpd_wanted_step(ddpd_record* record) { return record->wanted_step(); }
