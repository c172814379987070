// Prescriptions and the runs that prove them: a finding that names a strategy is matched with the
// run of that strategy.
#pragma once

namespace ddp_doctor {

struct Report;

// Fills in `proof` of each finding whose prescribed strategy was run, and makes the cheapest proven
// strategy the prescribed one.
void attach_proofs(Report& report);

}  // namespace ddp_doctor
