// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/gate/baseline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"
#include "lib/digest/digest.h"
#include "lib/error.h"
#include "lib/report/gate/rounding.h"
#include "lib/version.h"

namespace ddp_doctor {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr int kSchema = 2;  // 1 has bits only

// Beyond this distance between most gradients of the first step, two runs do not compute the same.
constexpr double kUnseeded = 0.01;

ordered_json to_json(const Fingerprint::ByRank& ranks) {
  ordered_json out = ordered_json::array();
  for (const auto& bits : ranks) out.push_back(bits ? ordered_json(to_hex(*bits)) : nullptr);
  return out;
}

Fingerprint::ByRank bits_from(const ordered_json& json) {
  Fingerprint::ByRank ranks;
  for (const auto& entry : json) {
    auto& bits = ranks.emplace_back();
    if (entry.is_null()) continue;
    const auto hex = entry.get<std::string>();
    bits.emplace();
    for (std::size_t i = 0; i < bits->size(); ++i)
      (*bits)[i] = static_cast<std::uint8_t>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  }
  return ranks;
}

// [norm, element, ...] by rank; of all ranks if they are equal.
ordered_json to_json(const Magnitudes::ByRank& ranks) {
  ordered_json out = ordered_json::array();
  for (const auto& measured : ranks) {
    ordered_json numbers = nullptr;
    if (measured) {
      numbers = {measured->norm};
      for (const double value : measured->sample) numbers.push_back(value);
    }
    out.push_back(std::move(numbers));
  }
  if (std::adjacent_find(out.begin(), out.end(), std::not_equal_to<>()) == out.end() &&
      !out.empty())
    out.erase(out.begin() + 1, out.end());
  return out;
}

Magnitudes::ByRank magnitudes_from(const ordered_json& json, std::size_t ranks) {
  Magnitudes::ByRank out;
  for (const auto& entry : json) {
    auto& measured = out.emplace_back();
    if (entry.is_null()) continue;
    // A number that is not finite is null in JSON.
    const auto number = [](const ordered_json& value) {
      return value.is_null() ? NAN : value.get<double>();
    };
    measured.emplace();
    measured->norm = number(entry.at(0));
    for (std::size_t i = 1; i < entry.size(); ++i) measured->sample.push_back(number(entry[i]));
  }
  if (out.size() == 1) out.resize(ranks, out.front());
  return out;
}

ordered_json to_json(const Distance& distance) { return {distance.norm, distance.sample}; }

Distance distance_from(const ordered_json& json) {
  return {json.at(0).get<double>(), json.at(1).get<double>()};
}

const char* rounding_key(Stage stage) {
  return stage == Stage::kWeight ? "weight_rounding" : "gradient_rounding";
}

const Distance* find(const Distances::Steps& steps, std::int64_t number, const std::string& name) {
  const auto step = steps.find(number);
  if (step == steps.end()) return nullptr;
  const auto found = step->second.find(name);
  return found == step->second.end() ? nullptr : &found->second;
}

// Throws Error where a run and its twin, which only rounds differently, have nothing in common.
void check_seeded(const Distances& rounding) {
  if (rounding.gradient.empty()) return;
  std::vector<double> norms;
  for (const auto& [name, distance] : rounding.gradient.begin()->second)
    norms.push_back(distance.norm);
  std::nth_element(norms.begin(), norms.begin() + static_cast<std::ptrdiff_t>(norms.size() / 2),
                   norms.end());
  const double middle = norms[norms.size() / 2];
  if (middle < kUnseeded) return;
  throw Error(
      fmt::format("--tolerance measured: two runs of this program differ by {:.2g} of most "
                  "gradients in step {}, which is not rounding; seed the program and its data",
                  middle, rounding.gradient.begin()->first));
}

std::string torch_of(const RunReport& run) {
  const auto found = run.environment.find("torch_version");
  return found == run.environment.end() ? "" : found->second;
}

// The first difference of a kind, and all parameters that show it there.
struct FirstDifference {
  std::int64_t step = 0;
  std::set<int> ranks;
  std::vector<FindingParameter> parameters;
};

FindingParameter parameter_of(const RunReport& run, const std::string& name) {
  const auto info = std::find_if(run.tensors.begin(), run.tensors.end(),
                                 [&](const TensorInfo& tensor) { return tensor.name == name; });
  return {name, info == run.tensors.end() ? std::nullopt : info->ddp_index};
}

template <class Of>
std::optional<FirstDifference> first_difference(const Fingerprint& a, const Fingerprint& b,
                                                const RunReport& run, Of of) {
  for (const auto& [number, in_a] : a.steps()) {
    const auto step = b.steps().find(number);
    if (step == b.steps().end()) continue;
    FirstDifference difference{number, {}, {}};
    for (const auto& [name, seen] : in_a) {
      const auto other = step->second.find(name);
      if (other == step->second.end()) continue;
      const auto& mine = of(seen);
      const auto& theirs = of(other->second);
      bool parts = false;
      for (std::size_t rank = 0; rank < std::min(mine.size(), theirs.size()); ++rank) {
        if (!mine[rank] || !theirs[rank] || *mine[rank] == *theirs[rank]) continue;
        difference.ranks.insert(static_cast<int>(rank));
        parts = true;
      }
      if (!parts) continue;
      difference.parameters.push_back(parameter_of(run, name));
    }
    if (!difference.parameters.empty()) return difference;
  }
  return {};
}

Finding finding_at(const Rule& rule, const FirstDifference& difference, const RunReport& run) {
  Finding finding = finding_of(rule);
  finding.ranks.assign(difference.ranks.begin(), difference.ranks.end());
  finding.first_step = std::max<std::int64_t>(difference.step, 1);
  finding.parameters = difference.parameters;
  finding.where = run.stepped_at(finding.first_step);
  return finding;
}

// Parameters that only one of them has.
std::vector<FindingParameter> only_in(const std::map<std::string, Fingerprint::Seen>& here,
                                      const std::map<std::string, Fingerprint::Seen>& there) {
  std::vector<FindingParameter> names;
  for (const auto& [name, seen] : here) {
    if (!there.contains(name)) names.push_back({name, {}});
  }
  return names;
}

std::string when(std::int64_t step) {
  return step == 0 ? std::string("before the first step") : fmt::format("in step {}", step);
}

constexpr const char* kAcceptChange =
    "If the numerics were meant to change{}, accept that with --update-baseline and commit the "
    "file; otherwise `ddp-doctor bisect` finds the commit.";

Finding of_bits(const Fingerprint& then, const Fingerprint& now,
                const Fingerprint::Comparison& common, const RunReport& run) {
  const bool gradient = common.parting->stage == Stage::kGradient;
  const auto difference = first_difference(
      then, now,
      run, [&](const auto& seen) -> const auto& { return gradient ? seen.gradient : seen.weight; });
  auto finding = finding_at(kNumericsChanged, *difference, run);
  finding.evidence["of"] = gradient ? "gradient" : "weight";
  finding.evidence["steps_compared"] = common.steps;
  finding.evidence["parameters_compared"] = common.parameters;
  finding.message =
      fmt::format("{}{} of {} no longer {} the bits of the baseline, first {}.",
                  gradient ? "The gradient" : "The weight",
                  finding.parameters.size() == 1 ? "" : "s", list_of(finding.parameters),
                  finding.parameters.size() == 1 ? "has" : "have", when(difference->step));
  finding.prescription = {fmt::format(fmt::runtime(kAcceptChange), " (or the machine changed)"),
                          ""};
  return finding;
}

Finding of_values(const BeyondRounding& beyond, const RoundingLimits& limits,
                  const RunReport& run) {
  FirstDifference difference{beyond.step, {}, {}};
  for (const auto& [name, distance] : beyond.parameters)
    difference.parameters.push_back(parameter_of(run, name));
  for (int rank = 0; rank < run.info.world_size; ++rank) difference.ranks.insert(rank);
  auto finding = finding_at(kNumericsChanged, difference, run);
  const bool gradient = beyond.stage == Stage::kGradient;
  const auto& distance = beyond.parameters.at(beyond.most);
  const auto limit = limits.at(beyond.stage, beyond.step, beyond.most);
  const bool by_norm = distance.norm / limit.norm >= distance.sample / limit.sample;
  const double far = by_norm ? distance.norm : distance.sample;
  const double rounding = (by_norm ? limit.norm : limit.sample) / kRoundingTimes;
  finding.evidence["of"] = gradient ? "gradient" : "weight";
  finding.evidence["distance"] = far;
  finding.evidence["rounding"] = rounding;
  finding.message = fmt::format(
      "{}{} of {} {} further from the baseline than rounding explains, first {}. Furthest is {}, "
      "by "
      "{:.2g} of its norm; rounding alone changes it by {:.2g}, and {:g} times that is tolerated.",
      gradient ? "The gradient" : "The weight", finding.parameters.size() == 1 ? "" : "s",
      list_of(finding.parameters), finding.parameters.size() == 1 ? "is" : "are", when(beyond.step),
      beyond.most, far, rounding, kRoundingTimes);
  finding.prescription = {fmt::format(fmt::runtime(kAcceptChange), ""), ""};
  return finding;
}

}  // namespace

Baseline Baseline::of(const RunReport& run, const std::optional<Distances>& rounding) {
  Baseline baseline;
  baseline.world_size_ = run.info.world_size;
  baseline.torch_ = torch_of(run);
  if (run.fingerprint) baseline.fingerprint_ = run.fingerprint();
  if (rounding && run.magnitudes) {
    check_seeded(*rounding);
    baseline.magnitudes_ = run.magnitudes();
    baseline.rounding_ = rounding;
  }
  return baseline;
}

Baseline Baseline::load(const fs::path& file) {
  std::ifstream in(file);
  if (!in)
    throw Error(fmt::format("--baseline {}: cannot be read; make it with --update-baseline",
                            file.string()));
  try {
    const auto json = ordered_json::parse(in);
    if (json.at("ddp_doctor_baseline").get<int>() > kSchema)
      throw Error(
          fmt::format("--baseline {}: written by a newer version; use that one, or make the "
                      "file again with --update-baseline",
                      file.string()));
    Baseline baseline;
    baseline.world_size_ = json.at("world_size").get<int>();
    baseline.torch_ = json.at("torch_version").get<std::string>();
    const bool measured = json.value("tolerance", "bits") == "measured";
    const auto ranks = static_cast<std::size_t>(baseline.world_size_);
    Fingerprint::Steps steps;
    Magnitudes::Steps magnitudes;
    Distances rounding;
    for (const auto& [text, parameters] : json.at("steps").items()) {
      const std::int64_t number = std::stoll(text);
      for (const auto& [name, seen] : parameters.items()) {
        auto& into = steps[number][name];
        into.gradient = bits_from(seen.at("gradient"));
        into.weight = bits_from(seen.at("weight"));
        for (const auto& used : seen.at("used"))
          into.used.push_back(used.is_null() ? std::nullopt : std::optional(used.get<bool>()));
        if (!measured) continue;
        magnitudes[number][name] = {magnitudes_from(seen.at("gradient_values"), ranks),
                                    magnitudes_from(seen.at("weight_values"), ranks)};
        for (const Stage stage : {Stage::kGradient, Stage::kWeight}) {
          const auto distance = seen.find(rounding_key(stage));
          if (distance != seen.end()) rounding.at(stage)[number][name] = distance_from(*distance);
        }
      }
    }
    baseline.fingerprint_ = Fingerprint(std::move(steps));
    if (measured) {
      baseline.magnitudes_ = Magnitudes(std::move(magnitudes));
      baseline.rounding_ = std::move(rounding);
    }
    return baseline;
  } catch (const Error&) {
    throw;
  } catch (const std::exception&) {
    throw Error(
        fmt::format("--baseline {}: not a baseline of ddp-doctor; make it with "
                    "--update-baseline",
                    file.string()));
  }
}

// A line for each step, so that a version control system shows which of them changed.
void Baseline::save(const fs::path& file) const {
  const fs::path draft = file.string() + ".new";
  std::ofstream out(draft);
  out << fmt::format(
      "{{\"ddp_doctor_baseline\": {}, \"tool_version\": \"{}\", \"world_size\": {}, "
      "\"torch_version\": {}, \"tolerance\": \"{}\",\n \"steps\": {{",
      rounding_ ? kSchema : 1, kVersion, world_size_, ordered_json(torch_).dump(),
      rounding_ ? "measured" : "bits");
  bool first = true;
  for (const auto& [number, parameters] : fingerprint_.steps()) {
    ordered_json step = ordered_json::object();
    for (const auto& [name, seen] : parameters) {
      ordered_json used = ordered_json::array();
      for (const auto& rank : seen.used) used.push_back(rank ? ordered_json(*rank) : nullptr);
      auto& into = step[name];
      into = {
          {"gradient", to_json(seen.gradient)}, {"weight", to_json(seen.weight)}, {"used", used}};
      if (!rounding_) continue;
      const auto& measured = magnitudes_.steps().at(number).at(name);
      into["gradient_values"] = to_json(measured.gradient);
      into["weight_values"] = to_json(measured.weight);
      for (const Stage stage : {Stage::kGradient, Stage::kWeight}) {
        if (const auto* distance = find(rounding_->at(stage), number, name))
          into[rounding_key(stage)] = to_json(*distance);
      }
    }
    out << fmt::format("{}\n  \"{}\": {}", first ? "" : ",", number, step.dump());
    first = false;
  }
  out << "\n}}\n";
  out.close();
  std::error_code failure;
  if (out) fs::rename(draft, file, failure);
  if (!out || failure) {
    fs::remove(draft, failure);
    throw Error(
        fmt::format("--baseline {}: cannot be written; check the folder and the space on its disk",
                    file.string()));
  }
}

Baseline::Comparison Baseline::compare(const RunReport& run, Tolerance tolerance) const {
  if (tolerance == Tolerance::kMeasured && !rounding_)
    throw Error(
        "--tolerance measured: this baseline has bits only; make it again with --update-baseline "
        "--tolerance measured");
  if (world_size_ != run.info.world_size) {
    throw Error(
        fmt::format("the baseline has {} and this run has {}; start as many, or make the "
                    "file again with --update-baseline",
                    count_of(static_cast<std::size_t>(world_size_), "rank"), run.info.world_size));
  }
  const Baseline now = of(run);
  const auto& then = fingerprint_;
  const auto common = Fingerprint::compare(then, now.fingerprint_);
  if (common.steps == 0 || common.parameters == 0)
    throw Error(
        "the baseline has no step and parameter in common with this run; if it belongs to another "
        "program, make it again with --update-baseline");
  std::vector<Finding> findings;
  const std::string torch =
      torch_ == now.torch_
          ? std::string()
          : fmt::format(" The baseline was made with torch {}, this run with torch {}.", torch_,
                        now.torch_);
  const auto& before = then.steps().rbegin()->second;
  const auto& after = now.fingerprint_.steps().rbegin()->second;
  const auto gone = only_in(before, after);
  const auto added = only_in(after, before);
  const auto used = first_difference(
      then, now.fingerprint_, run, [](const auto& seen) -> const auto& { return seen.used; });
  if (used || !gone.empty() || !added.empty()) {
    auto finding = finding_at(kGraphChanged, used.value_or(FirstDifference{}), run);
    if (used) {
      finding.message =
          fmt::format("From step {} on, the loss no longer depends on the same parameters: {}.",
                      *finding.first_step, list_of(finding.parameters));
      for (const auto& parameter : finding.parameters) {
        const auto& seen = now.fingerprint_.steps().at(used->step).at(parameter.name).used;
        const bool none = std::none_of(seen.begin(), seen.end(),
                                       [](const auto& rank) { return rank.value_or(false); });
        finding.evidence["used_now"][parameter.name] = !none;
      }
    }
    if (!gone.empty()) finding.message += fmt::format(" Gone: {}.", list_of(gone));
    if (!added.empty()) finding.message += fmt::format(" New: {}.", list_of(added));
    if (finding.message.starts_with(' ')) finding.message.erase(0, 1);
    if (!used) {
      finding.parameters = gone;
      finding.parameters.insert(finding.parameters.end(), added.begin(), added.end());
      finding.ranks = std::vector<int>(static_cast<std::size_t>(world_size_));
      std::iota(finding.ranks.begin(), finding.ranks.end(), 0);
    }
    finding.prescription = {
        "If the model was meant to change, accept it with --update-baseline and commit the "
        "file.",
        ""};
    findings.push_back(std::move(finding));
  }
  if (!common.parting) return {std::move(findings), {}};
  if (tolerance == Tolerance::kBits) {
    findings.push_back(of_bits(then, now.fingerprint_, common, run));
    findings.back().message += torch;
    return {std::move(findings), {}};
  }
  const auto seen = beyond_rounding(Distances(magnitudes_, run.magnitudes()), *rounding_);
  if (!seen.first) {
    auto note = fmt::format(
        "bits differ from the baseline's from step {} on, as far as rounding explains: at most "
        "{:.2g} of what is tolerated.{}",
        common.parting->step, seen.most, torch);
    return {std::move(findings), std::move(note)};
  }
  findings.push_back(of_values(*seen.first, RoundingLimits(*rounding_), run));
  findings.back().evidence["steps_compared"] = seen.steps;
  findings.back().message += torch;
  return {std::move(findings), {}};
}

}  // namespace ddp_doctor
