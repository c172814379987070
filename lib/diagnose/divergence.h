// SPDX-License-Identifier: BSD-3-Clause
// Where ranks that end up waiting for each other parted: the first position at which, in one
// process group, they did not issue the same collective. DDP111, DDP501, DDP502, DDP503 and DDP505
// are the names of what can be the reason.
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
  kUneven,      // ranks left the training, or an evaluation, that others go on with
  kLocal,       // some ranks alone entered a collective
};

struct Divergence {
  Reason reason = Reason::kMismatch;
  std::string cause;          // in half a sentence, where more is known than the reason
  std::string group;          // as LoggedCall has it
  std::int64_t position = 0;  // in the group
  std::int64_t step = 1;      // under way on the ranks that wait
  std::map<int, const LoggedCall*>
      at;  // what each rank issued there; those that issued nothing are not in
  std::vector<int> culprits;
  std::vector<std::string> parameters;  // synchronized by some ranks only
  std::optional<Where> where;           // on the culprits' way
};

// Nothing where all ranks came to their own end, where one fell for a reason of its own, where the
// probe keeps no call log, or where the logs do not part within what they hold.
std::optional<Divergence> divergence_of(const Timeline& timeline);

// The finding of `rule` about it: ranks, step, evidence (the last calls of each rank side by side),
// place. Message and prescription are the rule's.
Finding finding_of(const Rule& rule, const Timeline& timeline, const Divergence& divergence);

// Adds where each rank was when it was ended, where that is known.
Finding with_stacks(const Timeline& timeline, Finding finding);

// What those who are not the culprits wait in: "rank 0 waits in ..."
std::string waiting_in(const Divergence& divergence);

}  // namespace ddp_doctor
