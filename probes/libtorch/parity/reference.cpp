// SPDX-License-Identifier: BSD-3-Clause
#include "probes/libtorch/parity/reference.h"

#include <fmt/format.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;

constexpr int kMostIrregular = 10;      // steps in a row
constexpr std::size_t kMostAlone = 12;  // gradients that are computed one by one

constexpr int kFiguresVersion = 2;  // that lib/parity/figures.h reads

using nlohmann::json;

// Nothing where there is none: it counts as zeros.
std::vector<double> triangle_of(const std::vector<std::optional<at::Tensor>>& gradients) {
  std::vector<at::Tensor> vectors(gradients.size());
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i]) vectors[i] = gradients[i]->to(at::kDouble).reshape({-1});
  }
  std::vector<double> triangle;
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    for (std::size_t j = i; j < vectors.size(); ++j) {
      triangle.push_back(vectors[i].defined() && vectors[j].defined()
                             ? vectors[i].dot(vectors[j]).item<double>()
                             : 0.0);
    }
  }
  return triangle;
}

double mean_of(const std::vector<double>& values) {
  return values.empty() ? 0.0
                        : std::accumulate(values.begin(), values.end(), 0.0) /
                              static_cast<double>(values.size());
}

std::optional<at::Tensor> find(const std::vector<std::string>& names, const Gradients& gradients,
                               const std::string& name) {
  const auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? std::nullopt
                              : gradients[static_cast<std::size_t>(found - names.begin())];
}

bool is_low_precision(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
}

}  // namespace

ReferenceOfParity::ReferenceOfParity(fs::path folder, std::string how_to_give)
    : folder_(std::move(folder)), how_to_give_(std::move(how_to_give)) {
  try {
    read_steps();
  } catch (const std::exception& error) {
    failed(error.what());
  }
  for (std::size_t i = 0; i < plays_.size(); ++i) {
    if (!fs::exists(file_of(i))) left_.push_back(i);
  }
  if (left_.empty()) judge();
}

fs::path ReferenceOfParity::file_of(std::size_t play) const {
  return folder_ / "played" / fmt::format("{:04}.pt", play);
}

void ReferenceOfParity::failed(const std::string& reason) {
  end(json{{"version", kFiguresVersion}, {"impossible", reason}});
}

void ReferenceOfParity::end(const nlohmann::json& figures) const {
  const std::string text = figures.dump();
  write_bytes(folder_ / "figures.json", {text.begin(), text.end()});
  std::cout.flush();
  std::cerr.flush();
  _exit(0);
}

// Those that every rank has kept, with as many micro-batches.
void ReferenceOfParity::read_steps() {
  std::size_t ranks = 0;
  for (; fs::exists(impossible_file(folder_, static_cast<int>(ranks)).parent_path()); ++ranks) {
    std::ifstream in(impossible_file(folder_, static_cast<int>(ranks)));
    std::string reason;
    if (std::getline(in, reason)) throw Impossible(reason);
  }
  std::vector<std::int64_t> numbers;
  for (const auto& entry : fs::directory_iterator(kept_step_file(folder_, 0, 1).parent_path())) {
    const std::string stem = entry.path().stem().string();
    if (stem.starts_with("step-")) numbers.push_back(std::stoll(stem.substr(5)));
  }
  std::sort(numbers.begin(), numbers.end());
  for (const auto number : numbers) {
    RanksStep step{number, {}};
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const auto file = kept_step_file(folder_, static_cast<int>(rank), number);
      if (fs::exists(file)) step.ranks.push_back(read_kept_step(file));
    }
    const auto micro_batches = step.ranks.front().micro_batches.size();
    const bool alike = std::all_of(step.ranks.begin(), step.ranks.end(), [&](const auto& kept) {
      return kept.micro_batches.size() == micro_batches;
    });
    if (step.ranks.size() == ranks && alike &&
        (steps_.empty() || steps_.front().ranks[0].micro_batches.size() == micro_batches))
      steps_.push_back(std::move(step));
  }
  if (steps_.empty())
    throw Impossible("in no step does every rank have as many batches as in the others");
  for (std::size_t i = 0; i < steps_.size(); ++i) plays_.push_back({i, Kind::kJoined});
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    plays_.push_back({i, Kind::kPermuted});
    for (std::size_t j = 0; j < alone_of(steps_[i]).size(); ++j)
      plays_.push_back({i, Kind::kAlone, j});
  }
  plays_.push_back({steps_.size() - 1, Kind::kAgain});
  if (steps_.size() > 1) plays_.push_back({0, Kind::kAgain});
}

std::vector<ReferenceOfParity::Alone> ReferenceOfParity::alone_of(const RanksStep& step) const {
  const std::size_t ranks = step.ranks.size(), count = step.ranks.front().micro_batches.size();
  std::vector<Alone> alone;
  if (ranks > kMostAlone) return alone;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (count == 1 || ranks * count > kMostAlone) {
      alone.push_back({rank, std::nullopt});
    } else {
      for (std::size_t i = 0; i < count; ++i) alone.push_back({rank, i});
    }
  }
  return alone;
}

std::vector<Samples> ReferenceOfParity::samples_of(const Play& play) const {
  const auto& ranks = steps_[play.step].ranks;
  const std::size_t count = ranks.front().micro_batches.size();
  std::vector<Samples> samples;
  if (play.kind == Kind::kAlone) {
    const auto [rank, micro_batch] = alone_of(steps_[play.step])[play.alone];
    for (std::size_t i = 0; i < count * times_; ++i)
      samples.push_back(ranks[rank].micro_batches[micro_batch.value_or(i % count)]);
    return samples;
  }
  const bool permuted = play.kind == Kind::kPermuted;
  if (times_ > 1) {  // one process takes the ranks' micro-batches one after another
    for (const auto& rank : ranks)
      samples.insert(samples.end(), rank.micro_batches.begin(), rank.micro_batches.end());
    if (permuted) std::reverse(samples.begin(), samples.end());
    return samples;
  }
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<Samples> of_each;
    for (const auto& rank : ranks) of_each.push_back(rank.micro_batches[i]);
    const Samples joined = join(of_each);
    samples.push_back(permuted ? reversed(joined) : joined);
  }
  return samples;
}

const ReferenceOfParity::Play& ReferenceOfParity::play_under_way() const {
  return plays_[left_[std::min(at_, left_.size() - 1)]];
}

// The weights from which the ranks' step began.
void ReferenceOfParity::restore(const std::vector<NamedTensor>& tensors) const {
  const torch::NoGradGuard no_grad;
  const auto& from = steps_[play_under_way().step].ranks.front();
  for (const auto& named : tensors) {
    const auto found = std::find(from.names.begin(), from.names.end(), named.name);
    if (found == from.names.end()) continue;
    const auto& kept = from.tensors[static_cast<std::size_t>(found - from.names.begin())];
    if (kept.sizes() != named.tensor.sizes())
      throw Impossible(named.name + " has another shape in one process");
    at::Tensor tensor = named.tensor;
    tensor.copy_(kept);
  }
}

// The first step is the program's own, and shows how many micro-batches one process takes.
void ReferenceOfParity::learn() {
  const auto& ranks = steps_.front().ranks;
  const std::size_t count = ranks.front().micro_batches.size();
  if (drawn_ != count && drawn_ != count * ranks.size())
    throw Impossible(fmt::format(
        "one process took {} batches for its first step, not {} as a rank does", drawn_, count));
  times_ = drawn_ / count;
}

Samples ReferenceOfParity::batch(const Samples& given, const std::vector<NamedTensor>& tensors) {
  const std::size_t position = drawn_++;
  if (times_ == 0) return given;
  if (position == 0) {
    restore(tensors);
    samples_ = samples_of(play_under_way());
  }
  if (position >= samples_.size()) return given;
  Samples taken = put_into(given, samples_[position]);
  forward_begins();
  return taken;
}

void ReferenceOfParity::gradients_ready(int optimizer, const std::vector<NamedTensor>& parameters) {
  if (drawn_ == 0) throw Impossible(how_to_give_);
  if (optimizer > 0) return;
  if (times_ == 0) {
    learn();
  } else if (drawn_ != samples_.size()) {  // as at the end of an epoch: it is played again
    if (++irregular_ == kMostIrregular)
      throw Impossible(
          fmt::format("one process took {} batches for a step, not {}", drawn_, samples_.size()));
  } else {
    irregular_ = 0;
    Played played;
    played.losses = losses_;
    for (const auto& [name, tensor, is_buffer] : parameters) {
      played.parameters.push_back(name);
      played.gradients.push_back(gradient_of(tensor));
    }
    write_bytes(file_of(left_[at_]), to_bytes(played));
    if (++at_ == left_.size()) judge();
  }
  drawn_ = 0;
  losses_.clear();
}

void ReferenceOfParity::judge() const {
  json steps = json::array();
  bool drew_random = drew_random_, low_precision = false;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const auto& ranks = steps_[i].ranks;
    const auto& first = ranks.front();
    std::optional<Played> joined, again;
    std::vector<Played> others;  // permuted, then alone
    for (std::size_t j = 0; j < plays_.size(); ++j) {
      if (plays_[j].step != i) continue;
      Played played = read_played(file_of(j));
      if (plays_[j].kind == Kind::kJoined)
        joined = std::move(played);
      else if (plays_[j].kind == Kind::kAgain)
        again = std::move(played);
      else
        others.push_back(std::move(played));
    }
    if (again) others.push_back(std::move(*again));
    json parameters = json::array(), not_told = json::array();
    for (std::size_t p = 0; p < first.parameters.size(); ++p) {
      const auto& name = first.parameters[p];
      const auto reference = find(joined->parameters, joined->gradients, name);
      if (!first.gradients[p]) {
        if (reference) not_told.push_back(name);
        continue;
      }
      low_precision = low_precision || is_low_precision(*first.gradients[p]);
      std::vector<std::optional<at::Tensor>> vectors = {first.gradients[p], reference};
      for (const auto& other : others)
        vectors.push_back(find(other.parameters, other.gradients, name));
      parameters.push_back({{"name", name}, {"products", triangle_of(vectors)}});
    }
    json alone = json::array(), losses = json::array();
    std::map<std::string, std::vector<double>> counts;
    const auto alone_here = alone_of(steps_[i]);
    for (const auto& [rank, micro_batch] : alone_here) {
      alone.push_back(rank);
      std::map<std::string, double> sums;
      const auto& own = ranks[rank].micro_batches;
      for (std::size_t m = 0; m < own.size(); ++m) {
        if (micro_batch && *micro_batch != m) continue;
        for (const auto& [name, count] : counts_of(own[m])) sums[name] += count;
      }
      for (const auto& [name, count] : sums) counts[name].push_back(count);
    }
    std::erase_if(counts,
                  [&](const auto& each) { return each.second.size() != alone_here.size(); });
    for (const auto& kept : ranks) {
      if (!kept.losses.empty()) losses.push_back(mean_of(kept.losses));
      drew_random = drew_random || kept.drew_random;
    }
    steps.push_back({{"step", steps_[i].number},
                     {"alone", alone},
                     {"padded", nullptr},
                     {"again", again.has_value()},
                     {"parameters", parameters},
                     {"not_told", not_told},
                     {"loss", {{"ranks", losses}, {"one", mean_of(joined->losses)}}},
                     {"counts", counts},
                     {"module", nullptr}});
  }
  json random = json::array();
  if (drew_random) random.push_back("in the forward or the loss");
  const json figures = {
      {"version", kFiguresVersion},     {"steps", steps}, {"random", random},
      {"frozen_differ", json::array()}, {"dealt", false}, {"low_precision", low_precision}};
  end(figures);
}

}  // namespace ddp_doctor
