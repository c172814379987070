// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/gate/baseline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "lib/diagnose/facts.h"
#include "lib/diagnose/rule.h"
#include "lib/digest/digest.h"
#include "lib/error.h"
#include "lib/version.h"

namespace ddp_doctor {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr int kSchema = 1;

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
      const auto info =
          std::find_if(run.tensors.begin(), run.tensors.end(),
                       [&, name = name](const TensorInfo& tensor) { return tensor.name == name; });
      difference.parameters.push_back(
          {name, info == run.tensors.end() ? std::nullopt : info->ddp_index});
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
  finding.where = run.step_place;
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

}  // namespace

Baseline Baseline::of(const RunReport& run) {
  Baseline baseline;
  baseline.world_size_ = run.info.world_size;
  baseline.torch_ = torch_of(run);
  if (run.fingerprint) baseline.fingerprint_ = run.fingerprint();
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
    Fingerprint::Steps steps;
    for (const auto& [number, parameters] : json.at("steps").items()) {
      auto& step = steps[std::stoll(number)];
      for (const auto& [name, seen] : parameters.items()) {
        auto& into = step[name];
        into.gradient = bits_from(seen.at("gradient"));
        into.weight = bits_from(seen.at("weight"));
        for (const auto& used : seen.at("used"))
          into.used.push_back(used.is_null() ? std::nullopt : std::optional(used.get<bool>()));
      }
    }
    baseline.fingerprint_ = Fingerprint(std::move(steps));
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
      "\"torch_version\": {},\n \"steps\": {{",
      kSchema, kVersion, world_size_, ordered_json(torch_).dump());
  bool first = true;
  for (const auto& [number, parameters] : fingerprint_.steps()) {
    ordered_json step = ordered_json::object();
    for (const auto& [name, seen] : parameters) {
      ordered_json used = ordered_json::array();
      for (const auto& rank : seen.used) used.push_back(rank ? ordered_json(*rank) : nullptr);
      step[name] = {
          {"gradient", to_json(seen.gradient)}, {"weight", to_json(seen.weight)}, {"used", used}};
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

std::vector<Finding> Baseline::differences(const RunReport& run) const {
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
  if (common.parting) {
    const bool gradient = common.parting->stage == Stage::kGradient;
    const auto difference = first_difference(
        then, now.fingerprint_, run, [&](const auto& seen) -> const auto& {
          return gradient ? seen.gradient : seen.weight;
        });
    auto finding = finding_at(kNumericsChanged, *difference, run);
    finding.evidence["of"] = gradient ? "gradient" : "weight";
    finding.evidence["steps_compared"] = common.steps;
    finding.evidence["parameters_compared"] = common.parameters;
    finding.message =
        fmt::format("{} of {} no longer {} the bits of the baseline, first {}.{}",
                    gradient ? "The gradient" : "The weight", list_of(finding.parameters),
                    finding.parameters.size() == 1 ? "has" : "have",
                    difference->step == 0 ? std::string("before the first step")
                                          : fmt::format("in step {}", difference->step),
                    torch);
    finding.prescription = {
        "If the numerics were meant to change (or the machine changed), accept that with "
        "--update-baseline and commit the file; otherwise `ddp-doctor bisect` finds the commit.",
        ""};
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace ddp_doctor
