#include "tool/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <optional>
#include <sstream>

#include "lib/diagnose/rule.h"
#include "lib/error.h"
#include "lib/report/render.h"

namespace ddp_doctor {
namespace {

std::string render(const Report& report, const std::string& format, const TextStyle& style) {
  std::ostringstream out;
  if (format == "json") {
    render_json(report, out);
  } else if (format == "markdown") {
    render_markdown(report, out);
  } else {
    render_text(report, style, out);
  }
  return out.str();
}

std::string format_of(const std::filesystem::path& file) {
  const auto suffix = file.extension();
  return suffix == ".json" ? "json" : suffix == ".md" ? "markdown" : "text";
}

// Before anything runs, and before a file that was named by mistake is opened for writing.
std::string known_suffix(const std::string& file) {
  const auto suffix = std::filesystem::path(file).extension();
  if (suffix == ".json" || suffix == ".txt" || suffix == ".md") return {};
  return fmt::format("{}: the suffix tells the format; use .json, .md or .txt", file);
}

// The mildest severity that fails; nothing for "never".
std::optional<Severity> severity_of(const std::string& name) {
  for (const Severity severity : {Severity::kAdvice, Severity::kWarning, Severity::kError}) {
    if (name == name_of(severity)) return severity;
  }
  return {};
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

void filter(Report& report, const OutputOptions& options) {
  if (options.select.empty() && options.ignore.empty()) return;
  const auto names = [](const std::vector<std::string>& list, const Finding& finding) {
    return std::any_of(list.begin(), list.end(), [&](const auto& word) {
      return word == finding.rule || word == finding.name;
    });
  };
  select_findings(report, [&](const Finding& finding) {
    return !names(options.ignore, finding) &&
           (options.select.empty() || names(options.select, finding));
  });
}

void write_file(const std::filesystem::path& file, const std::string& text) {
  std::ofstream out(file);
  out << text;
  out.flush();
  if (!out)
    throw Error(
        fmt::format("--report {}: cannot be written; check the folder and the space on its disk",
                    file.string()));
}

int exit_code_of(const Report& report, const std::optional<Severity>& fail_on) {
  const auto fails = [&](const std::vector<Finding>& findings) {
    return fail_on && std::any_of(findings.begin(), findings.end(), [&](const Finding& finding) {
             return finding.severity >= *fail_on;
           });
  };
  if (fails(report.findings)) return exit_code::kSick;
  bool inconclusive = report.health() == Health::kInconclusive;
  if (report.purpose == Purpose::kCompare) {  // each of them is judged
    for (const auto& run : report.runs) {
      if (fails(run.diagnosis.findings)) return exit_code::kSick;
      inconclusive = inconclusive || run.health() == Health::kInconclusive;
    }
  }
  return inconclusive ? exit_code::kInconclusive : exit_code::kHealthy;
}

}  // namespace

void add_output_flags(CLI::App& app, OutputOptions& options) {
  app.add_option("--format", options.format, "What stdout gets")
      ->check(CLI::IsMember({"text", "json", "markdown"}))
      ->capture_default_str();
  app.add_option("--report", options.reports,
                 "Write the report to FILE too (.json, .md, .txt); repeatable")
      ->check(known_suffix)
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
  filter(report, options);
  std::string text =
      render(report, options.format, {want_color(options.color, streams, std::cout)});
  if (options.quiet && options.format == "text")
    text.erase(0, text.rfind('\n', text.size() - 2) + 1);
  streams.out << text << std::flush;
  if (!streams.out)
    throw Error("the report could not be written to standard output; is its disk full?");
  for (const auto& file : options.reports) write_file(file, render(report, format_of(file), {}));
  return exit_code_of(report, severity_of(options.fail_on));
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
