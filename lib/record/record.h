// SPDX-License-Identifier: BSD-3-Clause
// The data that a probe writes about one rank, as plain values. The SQLite schema (schema.h) stores
// exactly these; docs/record.md documents it for other readers.
//
// Steps count optimizer steps from 1. Step 0 is the state before the first one (weights only).
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/digest/digest.h"
#include "lib/digest/elements.h"

namespace ddp_doctor {

// Who wrote the record. `details` carries what only some probes know (torch version, strategy,
// ...).
struct RecordHeader {
  int rank = 0;
  int world_size = 1;
  std::string probe;    // "script", "python", "cpp"
  std::string program;  // as given by the user
  std::map<std::string, std::string> details;
};

// A parameter or a buffer of the examined module, under the name that the wrapped module gives it.
struct TensorInfo {
  int id = 0;  // position in the record, dense from 0
  std::string name;
  std::string kind = "parameter";  // or "buffer"
  std::string dtype;
  std::vector<std::int64_t> sizes;
  std::int64_t numel = 0;
  bool trainable = true;         // requires_grad at the start of the examination
  std::optional<int> ddp_index;  // index in the reducer's list, the one that PyTorch's errors print
  std::string module;            // name of the owning module ("" is the root)
  std::optional<int> wrapper;    // number of the wrapper that holds its module; none: not wrapped
};

// The point in a step at which a tensor was examined.
enum class Stage : int {
  kLocalGradient = 0,       // after backward, before it was synchronized
  kGradient = 1,            // the input of optimizer.step()
  kWeight = 2,              // after optimizer.step()
  kBuffer = 3,              // after optimizer.step()
  kReducedGradient = 4,     // after the last synchronizing backward
  kCollectiveGradient = 5,  // before the first hand-written collective of the step
  kWeightBefore = 6,        // before optimizer.step()
  kAccumulated = 7,         // after the last backward under no_sync
  kBeforeBackward = 8,      // before the backward that followed it
};
inline constexpr int kStages = 9;

struct Observation {
  int tensor = 0;
  Stage stage = Stage::kGradient;
  TensorDigest digest;
};

// The raw elements of an observation, row-major, kept if the record's value budget allows.
struct KeptValues {
  int tensor = 0;
  Stage stage = Stage::kWeight;
  std::vector<std::uint8_t> bytes;
};

// The values at a few fixed positions of a tensor (sample_positions), as doubles: linear relations
// between ranks, such as a sum instead of a mean, can be tested on them without sending tensors.
struct Sample {
  int tensor = 0;
  Stage stage = Stage::kGradient;
  SampledValues values;
};

// Data of a step that is stored together: its digests or samples at one stage, or its usages, which
// belong to the whole step and have Stage{0}.
enum class Seen : int { kDigests = 0, kSamples = 1, kUsages = 2 };
struct Slot {
  Seen what = Seen::kDigests;
  Stage stage{};
  auto operator<=>(const Slot&) const = default;
};

// 128 bits over the tensors of a slot and their digests (samples, usages): two ranks whose tensors
// have the same ids saw the same if and only if their roots are equal.
using Root = std::array<std::uint8_t, 16>;
struct SlotRoot {
  Slot slot;
  Root root{};
};

// How one trainable parameter took part in one step.
struct Usage {
  int tensor = 0;
  bool used =
      false;  // its gradient was produced in this step (AccumulateGrad ran with a defined gradient)
  std::optional<bool> reached;    // an operation of a forward pass read it
  std::optional<bool> in_output;  // a forward's output depends on it through the autograd graph
  bool frozen = false;       // requires_grad was off at this step although it was on at the start
  int arrivals = 0;          // how often a gradient arrived
  int last_backward = 0;     // in which backward of the step the last one did, from 1
  bool replaced = false;     // no longer the tensor that the wrapper hooked
  bool in_optimizer = true;  // the optimizer of this step updates it
  bool assigned = false;     // it has a gradient that no backward produced
};

// A hand-written collective; consecutive identical calls are one entry.
struct Collective {
  std::string op;      // "all_reduce"
  std::string reduce;  // "sum", "avg", "" where it has none
  std::string dtype;
  std::int64_t numel = 0;
  std::string group;   // ranks: "0,1"; empty: all
  std::string moment;  // "forward", "backward", "before-step" (after backward) or "outside"
  std::string target;  // "gradient of NAME", "weight of NAME" or empty
  std::string file;    // the user's
  int line = 0;
  std::int64_t count = 1;
};

struct StepRecord {
  std::int64_t step = 0;
  std::optional<std::int64_t> recorded_step;  // if it differs from the number in its record
  std::optional<double> loss;                 // mean over the step's micro-batches
  std::int64_t started_ns = 0;                // CLOCK_REALTIME
  std::int64_t duration_ns =
      0;  // the program's own time: from zero_grad to the end of optimizer.step()
  std::int64_t probe_ns = 0;  // what the examination added, not part of duration_ns
  int backwards = 0;
  int unsynchronized_backwards = 0;  // of these, how many ran under no_sync
  int forwards_through_wrapper = 0;
  int forwards_around_wrapper = 0;  // forwards of the wrapped module that did not pass its wrapper
  int collectives = 0;              // issued by hand, not by a reducer
  std::int64_t collective_bytes = 0;
  int optimizer = 0;            // number of the optimizer that stepped
  bool examined = true;         // tensors were examined; otherwise only the counts are known
  bool skipped = false;         // a gradient scaler skipped the update
  std::optional<double> scale;  // the gradient scaler's, at this step
  std::string trace;            // what happened, in order: docs/record.md
  std::vector<Collective> calls;
  std::vector<Sample> samples;
  std::vector<Observation> observations;
  std::vector<Usage> usages;
  std::vector<KeptValues> values;
  std::vector<SlotRoot> roots;  // filled by a reader, ascending
};

// The DDP logging data, as TORCH_DISTRIBUTED_DEBUG=INFO prints it.
struct DdpField {
  std::string moment;  // "construction" or "runtime"
  std::string key;
  std::string value;
  bool is_integer = false;
  int wrapper = 0;  // whose
};

// A line of the program that a finding may point to, where something first happened.
struct Site {
  std::string what;  // "wrap", "forward", "forward-around", "backward", "step", ...
  std::int64_t step = 0;
  std::string file;  // the user's
  int line = 0;
  std::vector<std::string> via;  // "file:line" of the libraries in between, outermost first
};

// The number in "optimizer 1" or "step 1", if `text` is one of that kind.
std::optional<int> number_in(std::string_view text, std::string_view kind);

// The ranks in "0,1", as groups are recorded; without what is no number.
std::vector<int> ranks_in(std::string_view group);

// Any other fact that a rule may need, noted when it becomes true: docs/record.md lists them.
struct Fact {
  std::int64_t step = 0;  // the current step
  std::string subject;    // "wrapper 0", "optimizer 1", "sampler 0", ...
  std::string key;
  std::string value;  // JSON

  bool is(std::string_view kind, std::string_view what) const {
    return key == what && number_in(subject, kind);
  }
};

struct Event {
  std::int64_t step = 0;     // the current step
  std::int64_t time_ns = 0;  // CLOCK_REALTIME
  // "error": the program raised; "caught": a call raised, or a thread ended by an exception, and
  // the program may go on; "warning": something was not examined; "end": it finished
  std::string kind;
  std::string phase;  // what the rank was doing: a name of progress.h
  std::string text;
};

}  // namespace ddp_doctor
