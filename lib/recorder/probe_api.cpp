// SPDX-License-Identifier: BSD-3-Clause
#include "lib/recorder/probe_api.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "lib/error.h"
#include "lib/recorder/probe_record.h"
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

static_assert(take::kDigest == DDPD_DIGEST && take::kSample == DDPD_SAMPLE &&
              take::kKeep == DDPD_KEEP && take::kKeepLast == DDPD_KEEP_LAST &&
              take::kKeepWanted == DDPD_KEEP_WANTED);

const char* ddpd_version(void) { return kVersion; }

const char* ddpd_error(void) { return last_error.c_str(); }

ddpd_record* ddpd_open(const char* folder, const char* header, int64_t values_budget) {
  ddpd_record* record = nullptr;
  guarded([&] {
    const json described = json::parse(header);
    ScheduleSettings settings;
    settings.every = described.value("every", settings.every);
    settings.warmup = described.value("warmup", settings.warmup);
    record = new ddpd_record(folder, header_of(described), values_budget, settings);
  });
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

void ddpd_forget(ddpd_record* record) { record->forget(); }

void ddpd_swap(ddpd_record* record) { record->swap(); }

int ddpd_write_row(ddpd_record* record, int examined, int64_t probe_ns) {
  return guarded([&] { record->write_row(examined != 0, probe_ns); });
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

// ---- events

namespace {

std::span<Parameter* const> parameters_at(int64_t count, void* const* addresses) {
  return {reinterpret_cast<Parameter* const*>(addresses), static_cast<std::size_t>(count)};
}

const Parameter* parameter_at(const void* address) {
  return static_cast<const Parameter*>(address);
}

}  // namespace

int64_t ddpd_step_number(ddpd_record* record) { return record->schedule.number(); }

int ddpd_is_recorded(ddpd_record* record) { return static_cast<int>(record->schedule.recorded()); }

int ddpd_reads_graphs(ddpd_record* record) {
  return static_cast<int>(record->schedule.reads_graphs());
}

void ddpd_examine(ddpd_record* record) { record->schedule.examine(); }

int64_t ddpd_backwards(ddpd_record* record) { return record->history.counts.backwards; }

int ddpd_wrapper_begins(ddpd_record* record) {
  int number = -1;
  guarded([&] { number = record->passes.add_wrapper(); });
  return number;
}

void ddpd_wrapper_made(ddpd_record* record, int wrapper, int parameters, const char* group) {
  guarded([&] { record->wrapper_made(wrapper, parameters, group); });
}

void ddpd_forward_begins(ddpd_record* record, int wrapper, int kind) {
  guarded([&] {
    if (kind == 2) return record->passes.forward_without_gradients(wrapper);
    record->passes.forward_begins(wrapper, kind == 1);
  });
}

void ddpd_forward_ends(ddpd_record* record, int wrapper) { record->passes.forward_ends(wrapper); }

void ddpd_forward_around(ddpd_record* record, int wrapper) {
  guarded([&] { record->passes.forward_around(wrapper); });
}

void ddpd_forward_unseen(ddpd_record* record, int wrapper, int reduced) {
  record->passes.forward_unseen(wrapper, reduced != 0);
}

void ddpd_forget_forwards(ddpd_record* record) { record->passes.forget_forwards(); }

void ddpd_backward_begins(ddpd_record* record, const char* file, int line, int what) {
  guarded([&] { record->backward_begins(file, line, what); });
}

int ddpd_gradient_arrives(ddpd_record* record, void* parameter) {
  bool look = false;
  guarded([&] { look = record->gradient_arrives(*static_cast<Parameter*>(parameter), true); });
  return static_cast<int>(look);
}

int ddpd_is_still_local(ddpd_record* record, const void* parameter) {
  bool is = false;
  guarded([&] { is = record->passes.is_still_local(*parameter_at(parameter)); });
  return static_cast<int>(is);
}

int ddpd_was_local(ddpd_record* record, const void* parameter) {
  return static_cast<int>(record->passes.is_examined(*parameter_at(parameter)));
}

int ddpd_backward_ends(ddpd_record* record, int retained, int raised, int reads_are_seen) {
  bool unwrapped = false;
  guarded([&] {
    record->backward_ends({retained != 0, raised != 0, reads_are_seen != 0});
    unwrapped = record->last_backward().unwrapped;
  });
  return static_cast<int>(unwrapped);
}

int ddpd_backward_of(ddpd_record* record, int wrapper) {
  const auto& last = record->last_backward();
  const auto flag = [&](const std::vector<int>& wrappers, int value) {
    return std::find(wrappers.begin(), wrappers.end(), wrapper) != wrappers.end() ? value : 0;
  };
  return flag(last.touched, DDPD_TOUCHED) | flag(last.synchronized, DDPD_SYNCHRONIZED) |
         flag(last.partial, DDPD_PARTIAL) | flag(last.again, DDPD_AGAIN) |
         flag(last.unseen, DDPD_UNSEEN);
}

void ddpd_loss(ddpd_record* record, double loss) {
  guarded([&] { record->history.loss(loss); });
}

void ddpd_token(ddpd_record* record, const char* token) {
  guarded([&] { record->history.token(token); });
}

const char* ddpd_moment(ddpd_record* record) { return record->passes.moment(); }

int ddpd_first_before_step(ddpd_record* record) {
  return static_cast<int>(record->passes.first_before_step());
}

int64_t ddpd_collective(ddpd_record* record, int paired, const char* op, const char* reduce,
                        const char* dtype, int64_t numel, int64_t bytes, const char* log_group,
                        const char* group, const char* moment, const char* target, const char* file,
                        int line) {
  std::int64_t number = 0;
  guarded([&] {
    Collective call{op, reduce, dtype, numel, group, moment, target, file, line, 1};
    number = record->collective(std::move(call), log_group, paired != 0, bytes);
  });
  return number;
}

int ddpd_optimizer(ddpd_record* record) {
  int number = -1;
  guarded([&] { number = record->add_optimizer(); });
  return number;
}

void ddpd_optimizer_holds(ddpd_record* record, int optimizer, int64_t count,
                          void* const* parameters) {
  guarded([&] { record->holds(optimizer, parameters_at(count, parameters)); });
}

int64_t ddpd_backwards_before(ddpd_record* record, int optimizer) {
  return record->backwards_before(optimizer);
}

int64_t ddpd_cover(ddpd_record* record, int optimizer, int64_t elsewhere_count,
                   void* const* elsewhere, int64_t count, void* const* all, int32_t* ids) {
  std::int64_t found = 0;
  guarded([&] {
    for (const Parameter* parameter : record->cover(
             optimizer, parameters_at(elsewhere_count, elsewhere), parameters_at(count, all)))
      ids[found++] = parameter->id;
  });
  return found;
}

void ddpd_usages(ddpd_record* record, int optimizer) {
  const ParameterView view{
      .reach = [](const Parameter&) { return Reach(); },
      .requires_grad = [](const Parameter& parameter) { return parameter.trainable; },
      .has_gradient = [](const Parameter&) { return false; },
      .has_any_gradient = [](const Parameter&) { return false; }};
  guarded([&] {
    const auto& covered = record->covered(optimizer);
    record->set_usages_of(optimizer, {covered.begin(), covered.end()}, view);
  });
}

int ddpd_step_begins(ddpd_record* record) { return static_cast<int>(record->passes.step_begins()); }

void ddpd_gradients_taken(ddpd_record* record) { record->passes.gradients_taken(); }

int ddpd_step_ends(ddpd_record* record) { return static_cast<int>(record->passes.step_ends()); }

void ddpd_take_row(ddpd_record* record, const ddpd_row* row) {
  guarded([&] {
    StepRecord clocks;
    clocks.started_ns = row->started_ns;
    clocks.duration_ns = row->duration_ns;
    if (!std::isnan(row->scale)) clocks.scale = row->scale;
    clocks.optimizer = row->optimizer;
    clocks.skipped = row->skipped != 0;
    record->take_row(clocks);
  });
}

void ddpd_step_closed(ddpd_record* record, int optimizer) {
  guarded([&] { record->step_closed(optimizer); });
}
