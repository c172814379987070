// SPDX-License-Identifier: BSD-3-Clause
// What is recorded of a run beside the rows of its steps: what the rank is doing, facts, places in
// the program, warnings. Each is written once, or where it changes.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>

#include "lib/record/rank_writer.h"
#include "lib/recorder/schedule.h"

namespace ddp_doctor {

class Journal {
 public:
  Journal(RankWriter& writer, const Schedule& schedule) : writer_(writer), schedule_(schedule) {}

  void enter(Phase phase);
  Phase phase() const { return phase_; }
  void event(const std::string& kind, const std::string& text);
  // Something is not examined.
  void warn(const std::string& text);
  // `value`: JSON.
  void fact(const std::string& subject, const std::string& key, const std::string& value);
  // Where `what` happened first. No `file`: it is not the program's.
  void site(const std::string& what, const std::string& file, int line);

 private:
  RankWriter& writer_;
  const Schedule& schedule_;
  Phase phase_ = Phase::kBatch;
  std::set<std::string> warned_, sites_;
  std::map<std::pair<std::string, std::string>, std::string> facts_;
};

}  // namespace ddp_doctor
