#include <fmt/format.h>

#include <cctype>

#include "lib/diagnose/rule.h"
#include "lib/error.h"
#include "tool/command.h"
#include "tool/rule_pages.h"

namespace ddp_doctor {

Action setup_explain(CLI::App& app) {
  auto code = std::make_shared<std::string>();
  app.add_option("rule", *code, "Its code (DDP101) or name (wrapper-bypassed)")
      ->required()
      ->type_name("CODE");
  return [code](const Call& call) {
    const Streams streams = call.streams;
    std::string wanted = *code;
    for (auto& letter : wanted)
      letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    if (wanted.starts_with("ddp")) wanted.replace(0, 3, "DDP");
    if (const Rule* rule = find_rule(wanted)) wanted = rule->code;
    for (const auto& page : rule_pages()) {
      if (page.code == wanted) {
        streams.out << page.text;
        return exit_code::kHealthy;
      }
    }
    throw Error(fmt::format("{} is not a rule; `ddp-doctor rules` lists them", *code));
  };
}

Action setup_rules(CLI::App&) {
  return [](const Call& call) {
    const Streams streams = call.streams;
    for (const Rule& rule : all_rules()) {
      streams.out << fmt::format("{} {:<24} {:<8} {}\n", rule.code, rule.name,
                                 name_of(rule.severity), rule.headline);
    }
    return exit_code::kHealthy;
  };
}

}  // namespace ddp_doctor
