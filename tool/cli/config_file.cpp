// SPDX-License-Identifier: BSD-3-Clause
#include "tool/cli/config_file.h"

#include <fmt/format.h>

#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "lib/error.h"
#include "tool/cli/misspelling.h"

namespace ddp_doctor {
namespace {

[[noreturn]] void refuse(const toml::node& node, const std::string& problem) {
  throw Error(fmt::format("the configuration file, line {}: [placement] {}",
                          node.source().begin.line, problem));
}

template <typename Value>
std::vector<Value> list_of(const toml::node& node, const std::string& key, const char* example) {
  std::vector<Value> values;
  const auto* list = node.as_array();
  for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
    if (const auto value = list->get(i)->value_exact<Value>()) values.push_back(*value);
  }
  if (list == nullptr || values.empty() || values.size() != list->size())
    refuse(node, fmt::format("{} must be a list, such as {}", key, example));
  return values;
}

// { tp = "replicate", dp = "replicate" }
StatedKinds kinds_in(const std::string& pattern, const toml::node& node) {
  const std::vector<std::string> known = {kStatedReplicate, kStatedShard};
  StatedKinds kinds;
  const auto* table = node.as_table();
  if (table == nullptr)
    refuse(node,
           fmt::format(
               "\"{}\" must have a placement for each dimension, such as {{ tp = \"replicate\" }}",
               pattern));
  for (const auto& [dimension, kind] : *table) {
    const auto text = kind.value<std::string>().value_or("");
    if (std::find(known.begin(), known.end(), text) == known.end()) {
      const auto meant = did_you_mean(text, known);
      refuse(kind, fmt::format("\"{}\": {} is \"replicate\" or \"shard\", not \"{}\"{}", pattern,
                               dimension.str(), text, meant));
    }
    kinds[std::string(dimension.str())] = text;
  }
  return kinds;
}

StatedPlacements stated_in(const toml::table& table) {
  StatedPlacements stated;
  std::map<toml::source_position, std::pair<std::string, StatedKinds>> by_place;
  for (const auto& [name, node] : table) {
    const std::string key{name.str()};
    if (key == "mesh_shape") {
      for (const auto size : list_of<std::int64_t>(node, key, "[2, 4]")) {
        if (size < 1 || size > 1'000'000)
          refuse(node, "each size in mesh_shape must be from 1 to 1000000");
        stated.mesh_shape.push_back(static_cast<int>(size));
      }
    } else if (key == "mesh_dim_names") {
      stated.mesh_dim_names = list_of<std::string>(node, key, "[\"dp\", \"tp\"]");
    } else {
      by_place[name.source().begin] = {key, kinds_in(key, node)};
    }
  }
  for (auto& [place, one] : by_place) stated.parameters.push_back(std::move(one));
  if (stated.mesh_shape.size() != stated.mesh_dim_names.size())
    refuse(table, fmt::format("mesh_shape has {} sizes and mesh_dim_names {} names: give one name "
                              "for each size",
                              stated.mesh_shape.size(), stated.mesh_dim_names.size()));
  return stated;
}

class TomlReader : public CLI::ConfigTOML {
 public:
  explicit TomlReader(StatedPlacements& placement) : placement_(placement) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    try {
      std::vector<CLI::ConfigItem> items;
      toml::table file = toml::parse(input);
      if (const auto* placement = file["placement"].as_table()) {
        placement_ = stated_in(*placement);
        file.erase("placement");
      }
      read(file, {}, items);
      return items;
    } catch (const toml::parse_error& error) {
      throw Error(
          fmt::format("the configuration file, line {}: {}; fix it, or name another with "
                      "--config",
                      error.source().begin.line, error.description()));
    }
  }

 private:
  static void read(const toml::table& table, const std::vector<std::string>& parents,
                   std::vector<CLI::ConfigItem>& items) {
    for (const auto& [key, node] : table) {
      const std::string name{key.str()};
      if (const auto* below = node.as_table()) {
        auto path = parents;
        path.push_back(name);
        read(*below, path, items);
        continue;
      }
      CLI::ConfigItem item{.parents = parents, .name = name, .inputs = {}};
      if (const auto* list = node.as_array()) {
        for (const auto& entry : *list) item.inputs.push_back(text_of(entry, name));
        if (list->empty()) continue;
      } else {
        item.inputs = {text_of(node, name)};
      }
      items.push_back(std::move(item));
    }
  }

  static std::string text_of(const toml::node& node, const std::string& name) {
    if (const auto* text = node.as_string()) return text->get();
    if (node.is_number() || node.is_boolean()) {
      std::ostringstream out;
      node.visit([&](const auto& value) { out << value; });
      return out.str();
    }
    throw Error(
        fmt::format("the configuration file, line {}: {} is not a string, a number, true or false",
                    node.source().begin.line, name));
  }

  StatedPlacements& placement_;
};

}  // namespace

std::shared_ptr<CLI::Config> toml_reader(StatedPlacements& placement) {
  return std::make_shared<TomlReader>(placement);
}

}  // namespace ddp_doctor
