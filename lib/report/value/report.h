// SPDX-License-Identifier: BSD-3-Clause
// A report is a value: what was run, what was observed step by step, what was found. Renderers
// (text, JSON) print it; nothing here does.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/diagnose/finding.h"
#include "lib/diagnose/rank_set.h"
#include "lib/parity/judge.h"
#include "lib/report/value/coverage.h"
#include "lib/report/value/mesh_map.h"
#include "lib/report/value/phases.h"
#include "lib/report/value/roots.h"
#include "lib/timeline/fingerprint.h"
#include "lib/timeline/magnitudes.h"
#include "lib/timeline/timeline.h"

namespace ddp_doctor {

enum class Health { kHealthy, kSick, kInconclusive };
const char* name_of(Health health);

// A figure of many ranks.
struct Range {
  double low = 0.0;  // over finite values; 0 if there is none
  double high = 0.0;
  std::size_t finite = 0;     // ranks
  std::size_t nonfinite = 0;  // ranks
};

// What a merged report of many ranks keeps of a step, in place of figures by rank.
struct ManyRanks {
  Range gradient_norm;
  Range loss;
  std::map<std::vector<int>, RankSet> unused;  // ranks by their indices of unused parameters
};

using ByRank = std::vector<std::optional<double>>;  // in the order of RunReport::ranks

struct StepRow {
  std::int64_t step = 0;
  ByRank gradient_norm;         // L2 over all trainable parameters, at optimizer.step
  std::optional<bool> synced;   // gradients equal on every rank, bit for bit
  std::optional<double> drift;  // exact max |W_i - W_j| after the step
  // The same between ranks along one dimension only: for each of MeshMap::dimensions.
  std::vector<std::optional<double>> drift_along;
  bool weights_differ = false;  // in their bits; an empty drift then means that no values were kept
  std::vector<std::vector<int>> unused;  // by rank: indices of unused parameters
  ByRank loss;
  std::optional<double> milliseconds;  // of the slowest rank
  std::optional<ManyRanks> many;       // then the vectors by rank are empty
};

// Median and range over all steps but the first two, which build and rebuild buckets.
struct StepTime {
  double median_ms = 0.0;
  double low_ms = 0.0;
  double high_ms = 0.0;
  std::size_t steps = 0;
};

// What a step costs relative to another run: the ratios of their median step times, pair by pair.
// `low` to `high` is the range of up to eight ratios, and of more the interval that holds their
// median with at least 95 % probability (sign test).
struct Cost {
  int base = 0;  // the run it is relative to
  double ratio = 1.0;
  double low = 1.0;
  double high = 1.0;
  std::size_t pairs = 0;

  // The interval excludes 1, and there are enough pairs (six) that this happens to two runs of the
  // same program in at most one case of 20.
  bool measurable() const;
};

// Where in a program's source a change belongs: tool/launch/source_change.py has the requests and
// answers. Empty if the source is not there, or its line is another one; without lines where the
// text does not tell the place.
using PlaceChange = std::function<std::optional<Change>(const nlohmann::json& request)>;

struct RunReport {
  RunInfo info;
  RankSet ranks;                 // in this report; others of the job ran elsewhere
  RankSet ended_well;            // of many ranks: those omitted from info.exits
  std::vector<StepRoots> roots;  // what its ranks saw, to compare with others
  // Its name in tables: its strategy, or its program if there are several.
  std::string label;
  std::map<std::string, std::string>
      environment;  // what the ranks reported about themselves (torch version, ...)
  std::vector<TensorInfo> tensors;
  MeshMap mesh;                      // empty in plain data parallelism
  std::vector<StepRow> steps_table;  // the examined steps
  Phases phases;                     // from the records; empty if read from JSON
  std::optional<StepTime> step_time;
  std::vector<std::optional<double>> again_ms;  // median step times of its repeats, round by round
  std::optional<Cost> cost;
  std::vector<std::string> changes;           // what its strategy did to the program
  std::vector<std::string> unapplied;         // what it could not do, and why
  bool plain_data_parallel = true;            // all ranks have all of one model, nothing is sharded
  std::optional<Where> wrap_place;            // in the user's code: where the wrapper is made
  std::map<std::int64_t, Where> step_places;  // where the optimizers step, from that step on
  PlaceChange place_change;                   // empty: nobody can be asked
  std::function<Fingerprint()> fingerprint;   // to compare it with other runs
  std::function<Magnitudes()> magnitudes;     // with those that round differently
  std::optional<double> probe_ms;             // median cost of the examination itself, per step
  std::optional<MeanCheck> mean_check;
  std::optional<Parity> parity;  // with one process, where that was asked for
  std::vector<DdpField> ddp;
  std::vector<std::string> notes;
  Diagnosis diagnosis;
  Coverage coverage;
  // One line: "clean", "raised in step 2 (forward): ...", "killed by SIGKILL in step 3", "timed out
  // in step 1".
  std::string outcome;
  std::int64_t outcome_step = 0;  // the step in which it ended, if it did not complete
  std::int64_t steps_done = 0;    // by every rank, examined or not; 0: not known
  std::int64_t last_step = 0;     // that any rank recorded, examined or not; 0: not known
  bool completed = false;         // every rank finished every step

  // It has every rank of the job.
  bool whole() const;
  // The rank at this position of a ByRank.
  int rank_at(std::size_t position) const;
  // No finding at warning or above, and every rank finished.
  bool clean() const;
  // It finished and had something to compare, so that finding nothing means something.
  bool conclusive() const;
  Health health() const;
  // The last step that any rank recorded.
  std::int64_t steps_seen() const;
  // Where the optimizer of that step stepped, or that of the first step.
  std::optional<Where> stepped_at(std::optional<std::int64_t> step = {}) const;
};

// A finding that the user has declared to be expected, and why.
struct Suppressed {
  Finding finding;
  std::string suppression;  // as it was given
  std::string reason;
};

// Whether two runs computed the same, bit for bit.
struct Equality {
  int a = 0;
  int b = 0;
  Fingerprint::Comparison seen;
};

struct Report {
  Purpose purpose = Purpose::kRun;
  std::string tool_version;
  std::string program;
  int world_size = 1;
  std::vector<RunReport> runs;         // the first is examined, the others are compared with it
  std::vector<Finding> findings;       // of the examined run, with proofs from the others
  std::vector<Suppressed> suppressed;  // other findings, which the user expects
  std::vector<std::string>
      unused_suppressions;  // that matched nothing, though their rule was decided
  struct PartialSuppression {
    std::string suppression;
    std::string left;  // what it does not cover: "fc.bias of DDP201 unused-parameters"
  };
  std::vector<PartialSuppression> partial_suppressions;
  std::vector<Equality> equalities;     // each run with the first, in a comparison
  std::string difference;               // in one sentence, in a comparison
  std::optional<Distances> rounding;    // of the examined run from one that rounds differently
  bool nothing_compared = false;        // by a gate: one rank and no baseline
  bool interrupted = false;             // while its runs were made: it has what was seen until then
  std::shared_ptr<const void> records;  // keeps what it may read later; empty: the user does

  // Sick with a finding at warning or above; inconclusive if nothing was found but the run did not
  // finish, or a gate compared nothing.
  Health health() const;
  // Gradients and weights of the examined run were equal on every rank at every step recorded, bit
  // for bit.
  bool bit_identical() const;
};

RunReport report_run(const Timeline& timeline, int index);
// What to do about ranks of the job that are missing from a run; empty if none is.
std::optional<std::string> note_on_absent_ranks(const RunReport& run);
// Sets RunReport::outcome and outcome_step from the rest of the run.
void settle_outcome(RunReport& run);
// The median time of its steps, without the first two, which build and rebuild buckets; in
// milliseconds.
std::optional<double> median_step_ms(const Timeline& timeline);
// A run without records, and why.
RunReport report_of_no_run(const RunInfo& run, const std::string& reason);

}  // namespace ddp_doctor
