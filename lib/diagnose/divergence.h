// SPDX-License-Identifier: BSD-3-Clause
// Where ranks that wait for each other diverged: the first position in one process group at which
// they did not issue the same collective. DDP111, DDP501, DDP502, DDP503 and DDP505 are the
// possible reasons.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lib/diagnose/finding.h"
#include "lib/diagnose/rule.h"
#include "lib/timeline/timeline.h"

namespace ddp_doctor {

enum class Reason {
  kManualSync,  // ranks synchronize different gradients by hand
  kStalled,     // ranks stopped outside any collective
  kMismatch,    // ranks are in different collectives
  kUneven,      // ranks left the training, or an evaluation, that others continue
  kLocal,       // some ranks alone entered a collective
};

struct Divergence {
  Reason reason = Reason::kMismatch;
  std::string cause;          // half a sentence, if more is known than the reason
  std::string group;          // as in LoggedCall
  std::int64_t position = 0;  // in the group
  std::int64_t step = 1;      // in progress on the ranks that wait
  std::map<int, const LoggedCall*>
      at;  // what each rank issued there; without ranks that issued nothing
  std::vector<int> culprits;
  bool decided = false;                 // kUneven: they stopped although their data had not ended
  std::vector<std::string> parameters;  // synchronized by some ranks only
  std::optional<Where> where;           // in the culprits' code
};

// Nothing if all ranks finished, if a rank crashed on its own, if the probe keeps no call log, or
// if the logs do not diverge in the calls that they hold.
std::optional<Divergence> divergence_of(const Timeline& timeline);

// The finding of `rule` about it: ranks, step, place, and evidence (the last calls of each rank).
// The rule adds message and prescription.
Finding finding_of(const Rule& rule, const Timeline& timeline, const Divergence& divergence);

// Adds each rank's stack when it was terminated, if known.
Finding with_stacks(const Timeline& timeline, Finding finding);

// What the other ranks wait in: "rank 0 waits in ..."
std::string waiting_in(const Divergence& divergence);

}  // namespace ddp_doctor
