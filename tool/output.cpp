#include "tool/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <sstream>

#include "lib/diagnose/rule.h"
#include "lib/error.h"
#include "lib/report/render.h"

namespace ddp_doctor {
namespace {

// Milder than any finding: nothing fails.
constexpr auto kNever = static_cast<Severity>(static_cast<int>(Severity::kError) + 1);

Severity severity_of(const std::string& name) {
  for (const Severity severity : {Severity::kAdvice, Severity::kWarning, Severity::kError}) {
    if (name == name_of(severity)) return severity;
  }
  return kNever;
}

std::string render(const Report& report, const std::string& format, const TextStyle& style) {
  std::ostringstream out;
  if (format == "json") {
    render_json(report, style.fail_on, out);
  } else {
    render_text(report, style, out);
  }
  return out.str();
}

std::string format_of(const std::filesystem::path& file) {
  if (file.extension() == ".json") return "json";
  if (file.extension() == ".txt") return "text";
  throw Error(
      fmt::format("--report {}: the suffix tells the format; use .json or .txt", file.string()));
}

bool want_color(const std::string& choice, const Streams& streams,
                const std::ostream& standard_out) {
  if (choice != "auto") return choice == "always";
  const char* no_color = std::getenv("NO_COLOR");
  if (no_color != nullptr && *no_color != '\0') return false;
  return &streams.out == &standard_out && isatty(STDOUT_FILENO) == 1;
}

std::string known_rule(const std::string& code) {
  return find_rule(code) != nullptr
             ? std::string()
             : fmt::format("{} is not a rule; `ddp-doctor rules` lists them", code);
}

void filter(std::vector<Finding>& findings, const OutputOptions& options) {
  const auto names = [](const std::vector<std::string>& list, const Finding& finding) {
    return std::any_of(list.begin(), list.end(), [&](const auto& word) {
      return word == finding.rule || word == finding.name;
    });
  };
  std::erase_if(findings, [&](const Finding& finding) {
    return names(options.ignore, finding) ||
           (!options.select.empty() && !names(options.select, finding));
  });
  for (auto& finding : findings) {
    std::erase_if(finding.consequences,
                  [&](const Finding& consequence) { return names(options.ignore, consequence); });
  }
}

}  // namespace

void add_output_flags(CLI::App& app, OutputOptions& options) {
  app.add_option("--format", options.format, "What stdout gets")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  app.add_option("--report", options.reports,
                 "Write the report to FILE too (.json, .txt); repeatable")
      ->allow_extra_args(false)
      ->type_name("FILE");
  app.add_option("--fail-on", options.fail_on, "Mildest severity that gives exit code 1")
      ->check(CLI::IsMember({"error", "warning", "advice", "never"}))
      ->capture_default_str();
  app.add_option("--select", options.select, "Report these rules only")
      ->check(known_rule)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("CODE");
  app.add_option("--ignore", options.ignore, "Leave these rules out")
      ->check(known_rule)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("CODE");
  app.add_option("--color", options.color)
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->capture_default_str();
  app.add_flag("-q,--quiet", options.quiet, "Print the verdict only");
}

int deliver(Report report, const OutputOptions& options, Streams streams) {
  filter(report.findings, options);
  TextStyle style{false, severity_of(options.fail_on)};
  for (const auto& file : options.reports) {
    std::ofstream out(file);
    out << render(report, format_of(file), style);
    out.flush();
    if (!out)
      throw Error(
          fmt::format("--report {}: cannot be written; check the folder and the space on its disk",
                      file.string()));
  }
  style.color = want_color(options.color, streams, std::cout);
  std::string text = render(report, options.format, style);
  if (options.quiet && options.format == "text")
    text.erase(0, text.rfind('\n', text.size() - 2) + 1);
  streams.out << text << std::flush;
  if (!streams.out)
    throw Error("the report could not be written to standard output; is its disk full?");
  switch (report.health(style.fail_on)) {
    case Health::kHealthy:
      return exit_code::kHealthy;
    case Health::kSick:
      return exit_code::kSick;
    case Health::kInconclusive:
      return exit_code::kInconclusive;
  }
  return exit_code::kInconclusive;
}

void add_environment_defaults(CLI::App& app) {
  for (auto* option : app.get_options()) {
    if (option->get_lnames().empty() || option->get_lnames().front() == "help") continue;
    std::string name = "DDP_DOCTOR_" + option->get_lnames().front();
    for (auto& letter : name)
      letter =
          letter == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
    option->envname(name);
  }
}

}  // namespace ddp_doctor
