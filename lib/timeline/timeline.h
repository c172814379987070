// SPDX-License-Identifier: BSD-3-Clause
// The records of all ranks of one run, merged by step, for rules and reports. Unknown values are
// empty optionals, never guesses.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lib/record/reader.h"
#include "lib/record/run_info.h"
#include "lib/timeline/placements.h"
#include "lib/timeline/replica_groups.h"
#include "lib/timeline/stack.h"
#include "lib/timeline/step_details.h"
#include "lib/timeline/step_pairing.h"

namespace ddp_doctor {

// Exact max |W_i - W_j| over all pairs of ranks, of one tensor.
struct TensorDrift {
  int tensor = 0;
  double max_abs_difference = 0.0;
};

class TimelineStep {
 public:
  std::int64_t number = 0;
  // From the first rank to the last; null where one has no record of this step.
  std::vector<const StepRecord*> ranks;
  std::shared_ptr<const std::vector<int>> here;  // Timeline::ranks()

  // Weights after the step. Empty if some rank's weights are missing, or differ where no values
  // were kept.
  std::optional<double> weight_drift;
  std::vector<TensorDrift>
      drifting;  // tensors whose values were compared and differ, largest first
  // The same as weight_drift, between ranks along one dimension only: for each of
  // Timeline::dimensions.
  std::vector<std::optional<double>> drift_along;

  // Its number in that rank's record, where values are kept under it.
  std::int64_t recorded(int rank) const;
  std::size_t expected() const { return here->size(); }  // how many ranks should have it
  int first_rank() const { return here->front(); }
  const StepRecord* at(int rank) const;
  const StepRecord* first() const { return at(first_rank()); }
  std::vector<const StepRecord*> records() const;  // of those that have it, by rank
  bool complete() const;                           // every rank has it
  bool examined() const;                           // including its tensors, not only its counts
  // Nothing if it was not recorded.
  std::optional<TensorDigest> find(int rank, int tensor, Stage stage) const;
  std::optional<Usage> usage(int rank, int tensor) const;
  std::optional<Sample> sample(int rank, int tensor, Stage stage) const;
  // Ranks in groups of equal bits; a rank that lacks the observation stands in none. Where only
  // some must hold the same, ranks that differ from others on purpose stand with them: there are
  // several groups only if replicas differ, and then they are those of the first that do.
  std::vector<std::vector<int>> groups(int tensor, Stage stage) const;
  std::vector<std::vector<int>> groups(int tensor, Stage stage,
                                       const std::vector<int>& among) const;
  // Every rank saw the same tensors at that stage, with the same bits. Costs no look at a tensor.
  bool same_everywhere(Stage stage) const;
  // No two ranks saw the same there.
  bool different_everywhere(Stage stage) const;
  // The lowest of each group of ranks that used their parameters alike: asked about usage, the
  // others would answer the same.
  std::vector<int> distinct_users() const;
  // The lowest rank that saw the same there as `rank`.
  int like(int rank, Slot slot) const;

  std::shared_ptr<StepDetails> details;         // null where no rank looked at its tensors
  std::shared_ptr<const ReplicaGroups> placed;  // Timeline::placed()

 private:
  bool has(int rank) const;
};

// ||synchronized gradient - mean of the local ones|| / ||mean of the local ones||, over all
// parameters and ranks together.
struct MeanCheck {
  std::int64_t step = 0;
  double relative_error = 0.0;
};

class Timeline {
 public:
  // Reads rank-*.sqlite of `folder`. A rank without a record is a note, not an error; throws Error
  // if no record can be read at all, or if records contradict each other (two of one rank,
  // different world sizes).
  // Of a run that goes on, `until` is the last step that is over on every rank; of one that was
  // ended, only the steps that every rank completed count.
  static Timeline load(const std::filesystem::path& folder, RunInfo run,
                       std::optional<std::int64_t> until = {});
  // From records at hand (tests, live use), without values: a drift other than zero and MeanCheck
  // stay empty.
  static Timeline merge(RunInfo run, const std::vector<RankRecord>& records,
                        std::optional<std::int64_t> until = {});

  Timeline(Timeline&&) noexcept;
  Timeline& operator=(Timeline&&) noexcept;
  ~Timeline();

  RunInfo run;
  // Those that this is about, ascending: what left a record, and what the launcher saw the end of.
  // The others ran elsewhere: "every rank" is every one of these.
  const std::vector<int>& ranks() const { return *ranks_; }
  int first_rank() const { return ranks_->front(); }
  bool whole() const { return whole_; }

  // Of all ranks, each name once; ids are positions here. Described as by the lowest rank that has
  // it.
  std::vector<TensorInfo> tensors;
  std::vector<TimelineStep> steps;  // ascending; step 0 is the state before the first one
  std::vector<std::string>
      notes;  // what is missing: "rank 1 left no record", "rank 0 ended after step 3"
  std::optional<MeanCheck> mean_check;

  // Ranks that train one model: all of them, unless the job trains several side by side (an
  // ensemble, the stages of a pipeline), each with replicas of its own. Only weights of one set are
  // to be the same.
  std::vector<std::vector<int>> replicas;
  // The same for one tensor at a stage: on a mesh only some ranks hold the same part of it.
  const std::vector<Ranks>& replicas_of(int tensor, Stage stage) const;
  const ReplicaGroups& placed() const { return *placed_; }
  void place(std::shared_ptr<const ReplicaGroups> placed);
  // Not every rank is a replica of every other.
  bool on_mesh() const { return !layout.model_parallel.empty() || !placed_->of.empty(); }
  // A timeline for each of them; empty if there is but one.
  std::vector<Timeline> replica_sets() const;
  // Parameters of which no two ranks hold the same part: shards; those that the program told
  // DistributedDataParallel to leave alone; or tensors of an optimizer that are in no module,
  // beside others that are, and begin apart (slices of a flat copy); or, outside of wrappers,
  // modules that begin apart in a job that deals out tokens (experts).
  std::set<int> rank_local;
  // Parameters that only some ranks' optimizers hold, and that are equal again before every next
  // step: the others get them by a broadcast (a sharded optimizer).
  std::set<int> updated_by_some;
  // From which step on steps are not compared: the ranks did not make them together.
  std::optional<Unpaired> unpaired;
  Layout layout;
  // Along what the ranks of a mesh lie: its named dimensions, then others that tensors lie on, then
  // those that the program's process groups show. Each once; none that has each rank alone, and
  // none without a name that has all ranks together.
  std::vector<Dimension> dimensions;

  // The one wrapper that this is about: of a run that has only one, or of a part.
  std::optional<int> wrapper;

  // A run with several wrappers, or with parameters beside its wrapper, in parts: one for each
  // wrapper, and one for what none covers. A part has all steps in which its parameters took part,
  // counts only what concerns it, and takes no parameter of another part for trainable. Empty if
  // there is but one.
  std::vector<Timeline> parts() const;

  // By rank: where its main thread was, innermost first, when it was ended because nothing moved.
  std::map<int, std::vector<Frame>> stacks;
  std::map<int, std::vector<std::string>> native_stacks;  // the functions it was in, likewise

  const RankRecord* record(int rank) const;  // null if that rank left none
  const TimelineStep* step(std::int64_t number) const;
  std::vector<int> trainable()
      const;  // ids of parameters that were trainable, in the reducer's order
  // The wrapper's construction data ("find_unused_parameters", ...), as the lowest rank has it;
  // empty without one.
  std::optional<std::string> ddp_field(const std::string& key) const;
  bool has_wrapper() const { return ddp_field("world_size").has_value(); }
  bool flag(const std::string& key) const { return ddp_field(key).value_or("0") != "0"; }
  // The place in the program where `what` (record.h) first happened, as the lowest rank that has it
  // saw it; for "wrap", "forward" and "forward-around" that of the wrapper.
  const Site* site(const std::string& what) const;
  // Where that step's optimizer stepped, or that of the first step.
  const Site* step_site(std::optional<std::int64_t> step) const;
  // The latest fact of that name that held at `step`, or at the end; null if there is none.
  const Fact* fact(int rank, const std::string& subject, const std::string& key,
                   std::optional<std::int64_t> step = {}) const;
  // What the rank failed of, if it did: its error event; otherwise the first exception that its
  // program caught after its last complete step, if it then failed.
  const Event* error(int rank) const;

 private:
  Timeline();
  std::shared_ptr<const std::vector<int>> ranks_;
  std::map<int, std::unique_ptr<RankRecord>> records_;
  std::map<int, std::vector<int>> own_ids_;  // by rank: a tensor's id in that rank's record, or -1
  std::map<int, std::vector<int>> run_ids_;  // the other way round; -1: it is not compared
  bool whole_ = false;
  std::shared_ptr<const ReplicaGroups> placed_ = std::make_shared<ReplicaGroups>();

  // All but what was seen of the tensors.
  static Timeline assemble(RunInfo run, std::vector<RankRecord> records,
                           std::optional<std::int64_t> until = {});
  std::vector<int> ranks_seen() const;
  // From the first rank to the last.
  std::size_t span() const { return static_cast<std::size_t>(ranks_->back() - first_rank()) + 1; }
  void adopt_tensors(int rank, const RankRecord& record);
};

}  // namespace ddp_doctor
