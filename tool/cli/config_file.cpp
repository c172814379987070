// SPDX-License-Identifier: BSD-3-Clause
#include "tool/cli/config_file.h"

#include <fmt/format.h>

#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include <sstream>

#include "lib/error.h"

namespace ddp_doctor {
namespace {

class TomlReader : public CLI::ConfigTOML {
 public:
  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    try {
      std::vector<CLI::ConfigItem> items;
      read(toml::parse(input), {}, items);
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
};

}  // namespace

std::shared_ptr<CLI::Config> toml_reader() { return std::make_shared<TomlReader>(); }

}  // namespace ddp_doctor
