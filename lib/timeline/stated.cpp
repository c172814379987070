// SPDX-License-Identifier: BSD-3-Clause
#include "lib/timeline/stated.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

namespace ddp_doctor {
namespace {

using nlohmann::json;
using Records = std::map<int, const RankRecord*>;

Ranks all_of(const Records& records) {
  Ranks ranks;
  for (const auto& [rank, record] : records) ranks.push_back(rank);
  return ranks;
}

// With the other ranks each alone; empty if the groups overlap.
std::vector<Ranks> completed(std::set<Ranks> groups, const Ranks& all) {
  std::set<int> members;
  std::size_t count = 0;
  for (const auto& group : groups) {
    members.insert(group.begin(), group.end());
    count += group.size();
  }
  if (count != members.size()) return {};
  for (const int rank : all) {
    if (!members.contains(rank)) groups.insert({rank});
  }
  return {groups.begin(), groups.end()};
}

std::string shape_of(const StatedPlacements& stated) {
  return fmt::format("{}", fmt::join(stated.mesh_shape, " x "));
}

Mesh stated_mesh(const StatedPlacements& stated) {
  Mesh mesh{{}, stated.mesh_shape, stated.mesh_dim_names};
  mesh.ranks.resize(static_cast<std::size_t>(std::accumulate(
      mesh.shape.begin(), mesh.shape.end(), mesh.shape.empty() ? 0 : 1, std::multiplies<>())));
  std::iota(mesh.ranks.begin(), mesh.ranks.end(), 0);
  return mesh;
}

// One dimension of a rank's statement in the program: {"dimension": "tp", "kind": "replicate"}, or
// with the "ranks" of a process group.
struct Said {
  std::string dimension;
  Ranks ranks;
  bool replicated = false;
};

std::vector<Said> said_in(const std::string& text) {
  std::vector<Said> all;
  for (const auto& one : json::parse(text, nullptr, false)) {
    if (!one.is_object()) continue;
    Ranks ranks = one.value("ranks", Ranks{});
    std::sort(ranks.begin(), ranks.end());
    all.push_back(
        {one.value("dimension", ""), std::move(ranks), one.value("kind", "") == kStatedReplicate});
  }
  return all;
}

class Reader {
 public:
  Reader(const Records& records, const std::vector<Dimension>& dimensions,
         std::vector<std::string>& notes)
      : all_(all_of(records)), dimensions_(dimensions), notes_(notes) {}

  // Of one parameter, as each rank said it in the program.
  std::vector<Along> combined(const std::string& name, const std::map<int, std::vector<Said>>& by) {
    std::vector<Along> known;
    std::size_t longest = 0;
    for (const auto& [rank, said] : by) longest = std::max(longest, said.size());
    for (std::size_t i = 0; i < longest; ++i) {
      std::set<Ranks> groups;
      const Said* first = nullptr;
      for (const auto& [rank, said] : by) {
        if (i >= said.size()) continue;
        if (first == nullptr) first = &said[i];
        if (!said[i].ranks.empty()) groups.insert(said[i].ranks);
      }
      if (!first->dimension.empty()) {
        say(first->dimension, first->replicated, "ddp_doctor.placement()", known);
      } else if (auto found = completed(groups, all_); !found.empty()) {
        known.push_back({{named(found), found}, first->replicated});
      } else {
        note(fmt::format(
            "not used: ddp_doctor.placement() of {}: the ranks' process groups overlap; "
            "pass each rank's group of the same dimension",
            name));
      }
    }
    return known;
  }

  // Along a dimension by its name; replaces what was known of it.
  void say(const std::string& dimension, bool replicated, const std::string& who,
           std::vector<Along>& known) {
    const auto found = std::find_if(dimensions_.begin(), dimensions_.end(),
                                    [&](const Dimension& one) { return one.name == dimension; });
    if (found == dimensions_.end()) {
      std::vector<std::string> names;
      for (const auto& one : dimensions_) names.push_back(one.name);
      note(fmt::format(
          "not used: {}: no dimension is named {}; {}", who, dimension,
          names.empty()
              ? "no DeviceMesh of the program has names: give mesh_shape and mesh_dim_names in "
                "[placement], or pass process groups to ddp_doctor.placement()"
              : fmt::format("there {} {}: use {}, or give mesh_shape and mesh_dim_names in "
                            "[placement]",
                            names.size() == 1 ? "is" : "are", fmt::join(names, ", "),
                            names.size() == 1 ? "that name" : "one of these names")));
      return;
    }
    std::erase_if(known, [&](const Along& one) { return one.dimension.groups == found->groups; });
    known.push_back({*found, replicated});
  }

  void note(std::string text) {
    if (std::find(notes_.begin(), notes_.end(), text) == notes_.end())
      notes_.push_back(std::move(text));
  }

 private:
  std::string named(const std::vector<Ranks>& groups) const {
    const auto known = std::find_if(dimensions_.begin(), dimensions_.end(),
                                    [&](const Dimension& one) { return one.groups == groups; });
    return known == dimensions_.end() ? "" : known->name;
  }

  const Ranks all_;
  const std::vector<Dimension>& dimensions_;
  std::vector<std::string>& notes_;
};

std::set<std::string> parameters_in(const Records& records) {
  std::set<std::string> names;
  for (const auto& [rank, record] : records) {
    for (const auto& tensor : record->tensors) {
      if (tensor.kind == "parameter") names.insert(name_in_model(tensor.name));
    }
  }
  return names;
}

// "a.weight, b.weight, c.weight, ..." is enough to find the others.
std::string some_of(const std::vector<std::string>& names) {
  constexpr std::size_t kNamed = 3;
  const std::vector<std::string> first(names.begin(),
                                       names.begin() + std::min(names.size(), kNamed));
  return fmt::format("{}{}", fmt::join(first, ", "), names.size() > kNamed ? ", ..." : "");
}

// Whether groups of replicas are as is stated along one dimension.
bool agrees(const Along& along, const std::vector<Ranks>& replicas) {
  std::map<int, std::size_t> home;
  for (std::size_t i = 0; i < replicas.size(); ++i) {
    for (const int rank : replicas[i]) home[rank] = i;
  }
  return std::all_of(along.dimension.groups.begin(), along.dimension.groups.end(),
                     [&](const Ranks& group) {
                       std::set<std::size_t> homes;
                       for (const int rank : group) {
                         if (home.contains(rank)) homes.insert(home[rank]);
                       }
                       return along.replicated ? homes.size() < 2 : homes.size() == group.size();
                     });
}

}  // namespace

std::vector<Dimension> dimensions_of(const Records& records, const StatedPlacements& stated) {
  std::vector<std::string> names;  // in the order of the meshes
  std::set<std::string> seen;
  std::map<std::string, std::set<Ranks>> groups;
  const auto add = [&](const Mesh& mesh) {
    for (std::size_t i = 0; i < std::min(mesh.names.size(), mesh.shape.size()); ++i) {
      const auto along = mesh.along(i);
      if (!groups.contains(mesh.names[i])) names.push_back(mesh.names[i]);
      groups[mesh.names[i]].insert(along.begin(), along.end());
    }
  };
  for (const auto& [rank, record] : records) {
    for (const auto& fact : record->facts) {
      // Most ranks describe the same ones.
      if (fact.subject == "mesh" && seen.insert(fact.value).second) add(mesh_in(fact.value));
    }
  }
  const Ranks all = all_of(records);
  if (const Mesh mesh = stated_mesh(stated); mesh.ranks == all) {
    for (const auto& name : mesh.names) groups.erase(name);
    std::erase_if(names, [&](const auto& name) { return !groups.contains(name); });
    add(mesh);
  }
  std::vector<Dimension> dimensions;
  for (const auto& name : names) {
    if (auto found = completed(groups[name], all); !found.empty())
      dimensions.push_back({name, std::move(found)});
  }
  return dimensions;
}

std::map<std::string, std::vector<Along>> stated_placements(
    const Records& records, const StatedPlacements& stated,
    const std::vector<Dimension>& dimensions, std::vector<std::string>& notes) {
  std::map<std::string, std::map<int, std::vector<Said>>> said;
  for (const auto& [rank, record] : records) {
    for (const auto& fact : record->facts) {
      if (fact.subject == "stated placement") said[fact.key][rank] = said_in(fact.value);
    }
  }
  Reader reader(records, dimensions, notes);
  std::map<std::string, std::vector<Along>> known;
  for (const auto& [name, by] : said) known[name] = reader.combined(name, by);
  const auto world_size = static_cast<std::size_t>(records.begin()->second->header.world_size);
  if (const Mesh mesh = stated_mesh(stated);
      !mesh.ranks.empty() && mesh.ranks.size() != world_size) {
    reader.note(fmt::format(
        "not used: mesh_shape {} in [placement] is of {} ranks, and the job has {}; correct it in "
        "ddp-doctor.toml",
        shape_of(stated), mesh.ranks.size(), world_size));
  }
  const auto parameters = parameters_in(records);
  for (const auto& [pattern, kinds] : stated.parameters) {
    bool matched = false;
    for (const auto& name : parameters) {
      if (fnmatch(pattern.c_str(), name.c_str(), 0) != 0) continue;
      matched = true;
      for (const auto& [dimension, kind] : kinds)
        reader.say(dimension, kind == kStatedReplicate, "[placement]", known[name]);
    }
    if (!matched && !parameters.empty()) {
      reader.note(fmt::format(
          "not used: \"{}\" in [placement] matches no parameter; correct it in ddp-doctor.toml "
          "(there are {})",
          pattern, some_of({parameters.begin(), parameters.end()})));
    }
  }
  std::erase_if(known, [](const auto& entry) { return entry.second.empty(); });
  return known;
}

void place_stated(Timeline& timeline, ReplicaGroups& groups) {
  std::map<std::string, std::vector<std::string>> contradicted;  // the statement, its parameters
  for (const auto& tensor : timeline.tensors) {
    const auto stated = timeline.layout.stated.find(name_in_model(tensor.name));
    if (tensor.kind != "parameter" || stated == timeline.layout.stated.end()) continue;
    const auto declared = timeline.layout.placements.find(tensor.name);
    const auto known = groups.of.find(tensor.id);
    const std::vector<Ranks> otherwise =
        known == groups.of.end() ? std::vector<Ranks>{timeline.ranks()} : known->second.weight;
    if (declared == timeline.layout.placements.end()) {
      const auto replicas = replica_groups(stated->second, otherwise);
      groups.of[tensor.id] = {replicas, replicas, PlacementSource::kStated};
      continue;
    }
    for (const auto& along : stated->second) {
      if (agrees(along, otherwise)) continue;
      const auto& placement = declared->second.front().placement;
      contradicted[fmt::format("stated to be {} along {}, but declared ({}) by {}",
                               along.replicated ? "replicated" : "sharded",
                               along.dimension.name.empty() ? in_braces(along.dimension.groups)
                                                            : along.dimension.name,
                               fmt::join(placement.kinds, ", "), placement.source)]
          .push_back(stated->first);
    }
  }
  for (const auto& [what, names] : contradicted) {
    timeline.notes.push_back(
        fmt::format("not used: {} {} {}; the declaration counts, so correct one of the two",
                    some_of(names), names.size() == 1 ? "is" : "are", what));
  }
}

}  // namespace ddp_doctor
