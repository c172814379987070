// SPDX-License-Identifier: BSD-3-Clause
#include "lib/report/render/mentioned.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "lib/diagnose/facts.h"
#include "lib/report/render/wrap.h"

namespace ddp_doctor {
namespace {

constexpr std::size_t kMax = 200;  // a log may name any number

MentionedParameter look_up(const RunReport& run, const TensorInfo* tensor, std::optional<int> index,
                           std::string name) {
  MentionedParameter mentioned{.index = index, .name = std::move(name)};
  if (tensor == nullptr) return mentioned;
  mentioned.parameter = *tensor;
  mentioned.name = tensor->name;
  mentioned.index = tensor->ddp_index;
  std::set<int> ranks;
  for (const auto& row : run.steps_table) {
    bool unused = false;
    for (std::size_t rank = 0; rank < row.unused.size(); ++rank) {
      const auto& list = row.unused[rank];
      if (!tensor->ddp_index ||
          std::find(list.begin(), list.end(), *tensor->ddp_index) == list.end())
        continue;
      ranks.insert(run.rank_at(rank));
      unused = true;
    }
    mentioned.unused_in += unused;
  }
  mentioned.unused_on.assign(ranks.begin(), ranks.end());
  return mentioned;
}

std::string line_of(const MentionedParameter& mentioned, const MentionedParameters& all) {
  const std::string index = mentioned.index ? fmt::format("index {}: ", *mentioned.index) : "";
  if (!mentioned.parameter) {
    return fmt::format(
        "{}{}there is no such parameter: the wrapper has {}. Check that this is the program of the "
        "error, with the same arguments",
        index, mentioned.name.empty() ? "" : mentioned.name + ": ", all.trainable);
  }
  const auto& tensor = *mentioned.parameter;
  std::string text = fmt::format("{}{}, {} [{}], of {}", index, tensor.name, tensor.dtype,
                                 fmt::join(tensor.sizes, ", "),
                                 tensor.module.empty() ? "the model itself" : tensor.module);
  if (!tensor.trainable) return text + "; not trainable here";
  if (mentioned.unused_in == 0) return text + "; used in every step here";
  return text + fmt::format("; unused on {} in {} of {}", ranks_of(mentioned.unused_on),
                            mentioned.unused_in, count_of(all.steps, "step"));
}

}  // namespace

MentionedParameters mentioned_in(const ExplainedLog& log, const RunReport& run) {
  MentionedParameters all{.program = run.info.program,
                          .world_size = run.info.world_size,
                          .steps = run.steps_table.size()};
  std::set<int> indices;
  std::set<std::string> names;
  for (const auto& explanation : log.explanations) {
    for (const auto& fields : explanation.fields) {
      indices.insert(fields.indices.begin(), fields.indices.end());
      names.insert(fields.names.begin(), fields.names.end());
    }
  }
  const auto find = [&](const auto& wanted) {
    const auto found = std::find_if(run.tensors.begin(), run.tensors.end(), wanted);
    return found == run.tensors.end() ? nullptr : &*found;
  };
  for (const auto& tensor : run.tensors) all.trainable += tensor.ddp_index.has_value();
  std::set<std::string> shown;
  for (const int index : indices) {
    if (all.parameters.size() == kMax) break;
    const auto* tensor = find([&](const TensorInfo& info) { return info.ddp_index == index; });
    all.parameters.push_back(look_up(run, tensor, index, ""));
    if (tensor != nullptr) shown.insert(tensor->name);
  }
  for (const auto& name : names) {
    if (all.parameters.size() == kMax || shown.contains(name)) continue;
    const auto* tensor = find([&](const TensorInfo& info) { return info.name == name; });
    all.parameters.push_back(look_up(run, tensor, {}, name));
  }
  return all;
}

void render_text(const MentionedParameters& mentioned, std::ostream& out) {
  out << fmt::format("\nIn {}, as it runs here ({} x {})\n", mentioned.program,
                     count_of(static_cast<std::size_t>(mentioned.world_size), "rank"),
                     count_of(mentioned.steps, "step"));
  if (mentioned.parameters.empty()) out << "  The text names no parameter.\n";
  for (const auto& parameter : mentioned.parameters)
    print_wrapped(out, line_of(parameter, mentioned), 2, 4);
}

nlohmann::ordered_json as_json(const MentionedParameters& mentioned) {
  using nlohmann::ordered_json;
  ordered_json out = {{"program", mentioned.program},
                      {"world_size", mentioned.world_size},
                      {"steps", mentioned.steps},
                      {"parameters", ordered_json::array()}};
  for (const auto& parameter : mentioned.parameters) {
    ordered_json entry = {{"index", nullptr},
                          {"name", parameter.name},
                          {"found", parameter.parameter.has_value()},
                          {"unused_on", parameter.unused_on},
                          {"unused_in", parameter.unused_in}};
    if (parameter.index) entry["index"] = *parameter.index;
    if (parameter.parameter) {
      entry["dtype"] = parameter.parameter->dtype;
      entry["shape"] = parameter.parameter->sizes;
      entry["module"] = parameter.parameter->module;
    }
    out["parameters"].push_back(std::move(entry));
  }
  return out;
}

}  // namespace ddp_doctor
