// SPDX-License-Identifier: BSD-3-Clause
// The reference: the same program as one process, in which each training step plays one of the
// ranks' steps again. When all is played it leaves figures.json and ends the process; a program
// that ends before is started again for the rest.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>

#include "probes/libtorch/parity/kept_step.h"
#include "probes/libtorch/parity/parity.h"

namespace ddp_doctor {

class ReferenceOfParity : public Parity {
 public:
  ReferenceOfParity(std::filesystem::path folder, std::string how_to_give);

  Samples batch(const Samples& given, const std::vector<NamedTensor>& tensors) override;
  void gradients_ready(int optimizer, const std::vector<NamedTensor>& parameters) override;
  void failed(const std::string& reason) override;

 private:
  enum class Kind { kJoined, kPermuted, kAlone, kAgain };
  struct RanksStep {
    std::int64_t number;
    std::vector<KeptStep> ranks;
  };
  // Of a step: all ranks' samples, or those of one of its `alone`.
  struct Play {
    std::size_t step;
    Kind kind;
    std::size_t alone = 0;
  };
  // A rank's samples by themselves, or one of its micro-batches in the place of all of its own.
  struct Alone {
    std::size_t rank;
    std::optional<std::size_t> micro_batch;
  };

  void read_steps();
  std::vector<Alone> alone_of(const RanksStep& step) const;
  std::vector<Samples> samples_of(const Play& play) const;
  const Play& play_under_way() const;
  void restore(const std::vector<NamedTensor>& tensors) const;
  void learn();
  std::filesystem::path file_of(std::size_t play) const;
  [[noreturn]] void judge() const;
  [[noreturn]] void end(const nlohmann::json& figures) const;

  const std::filesystem::path folder_;
  const std::string how_to_give_;
  std::vector<RanksStep> steps_;
  std::vector<Play> plays_;
  std::vector<std::size_t> left_;  // of `plays_`
  std::size_t at_ = 0;             // of `left_`
  std::vector<Samples> samples_;   // of the play under way
  std::size_t drawn_ = 0;          // micro-batches in the step under way
  int irregular_ = 0;              // steps in a row that took another number
  std::size_t times_ = 0;  // micro-batches of one process for one of a rank; 0: not known yet
};

}  // namespace ddp_doctor
