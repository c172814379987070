// SPDX-License-Identifier: BSD-3-Clause
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
#include "lib/report/verdict.h"
#include "tool/source_root.h"

namespace ddp_doctor {
namespace {

std::string render(const Report& report, const Format& format, const RenderOptions& options) {
  std::ostringstream out;
  format.render(report, options, out);
  return out.str();
}

// A file and its format: by its suffix, or as "FORMAT=FILE".
struct ReportFile {
  const Format* format = nullptr;
  std::filesystem::path file;
};

ReportFile parse_report_file(const std::string& text) {
  const auto equals = text.find('=');
  if (equals != std::string::npos) {
    if (const auto* format = find_format(text.substr(0, equals)))
      return {format, text.substr(equals + 1)};
  }
  const std::filesystem::path file = text;
  return {find_format(file.extension().string()), file};
}

// Before anything runs, and before a file that was named by mistake is opened for writing.
std::string known_suffix(const std::string& text) {
  if (parse_report_file(text).format != nullptr) return {};
  std::string suffixes;
  for (const auto& format : all_formats()) {
    if (!format.suffix.empty())
      suffixes += fmt::format("{}{}", suffixes.empty() ? "" : ", ", format.suffix);
  }
  return fmt::format("{}: the suffix tells the format; use {}, or name it: gitlab={}", text,
                     suffixes, text);
}

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const auto& format : all_formats()) names.emplace_back(format.name);
  return names;
}

// The mildest severity that fails; nothing for "never".
std::optional<Severity> severity_of(const std::string& name) {
  for (const Severity severity : {Severity::kAdvice, Severity::kWarning, Severity::kError}) {
    if (name == name_of(severity)) return severity;
  }
  return {};
}

bool is_terminal(const Streams& streams) {
  return &streams.out == &std::cout && isatty(STDOUT_FILENO) == 1;
}

bool want_color(const std::string& choice, const Streams& streams) {
  if (choice != "auto") return choice == "always";
  const char* no_color = std::getenv("NO_COLOR");
  if (no_color != nullptr && *no_color != '\0') return false;
  return is_terminal(streams);
}

std::string known_rule(const std::string& code) {
  return find_rule(code) != nullptr
             ? std::string()
             : fmt::format("{} is not a rule; `ddp-doctor rules` lists them", code);
}

}  // namespace

void let_selected_decide(const CLI::App& app, OutputOptions& options) {
  if (!options.select.empty() && app.get_option("--fail-on")->count() == 0)
    options.fail_on = name_of(Severity::kAdvice);
}

void keep_selected(Report& report, const OutputOptions& options) {
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

namespace {

// At once, so that nobody collects half of it; but what is no plain file (a pipe, a device) is only
// written to.
void write_file(const std::filesystem::path& file, const std::string& text) {
  std::error_code failure;
  const bool plain = !std::filesystem::exists(file, failure) ||
                     std::filesystem::is_regular_file(std::filesystem::symlink_status(file));
  const std::filesystem::path draft = plain ? file.string() + ".part" : file.string();
  std::ofstream out(draft);
  out << text;
  out.close();
  if (out && plain) std::filesystem::rename(draft, file, failure);
  if (out && !failure) return;
  if (plain) std::filesystem::remove(draft, failure);
  throw Error(fmt::format(
      "--report {}: cannot be written; check the folder and the space on its disk", file.string()));
}

// GitHub shows what a step leaves there on the page of the run; 1 MiB at most, or nothing.
void write_step_summary(const Report& report, RenderOptions options) {
  constexpr std::size_t kMax = 1024 * 1024;
  const char* file = std::getenv("GITHUB_STEP_SUMMARY");
  if (file == nullptr || *file == '\0') return;
  options.brief = true;
  std::ostringstream text;
  render_markdown(report, options, text);
  std::ofstream(file, std::ios::app) << text.str().substr(0, kMax / 2);
}

}  // namespace

void prepare_reports(const OutputOptions& options) {
  for (const auto& entry : options.reports) {
    const auto file = parse_report_file(entry).file;
    const auto folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
    std::error_code ignored;
    if (!std::filesystem::is_directory(folder, ignored) || access(folder.c_str(), W_OK) != 0)
      throw Error(
          fmt::format("--report {}: cannot be written: {} is no folder that can; make it first",
                      file.string(), folder.string()));
    if (std::filesystem::is_regular_file(std::filesystem::symlink_status(file, ignored)))
      std::filesystem::remove(file, ignored);
  }
}

int exit_code_of(const Report& report, const OutputOptions& options) {
  const auto fail_on = severity_of(options.fail_on);
  const auto fails = [&](const std::vector<Finding>& findings) {
    return fail_on && std::any_of(findings.begin(), findings.end(), [&](const Finding& finding) {
             return finding.severity >= *fail_on;
           });
  };
  bool inconclusive = false;
  for (const auto& [run, findings] : judged_runs(report)) {
    if (fails(findings)) return exit_code::kSick;
    inconclusive =
        inconclusive ||
        (&run == &report.runs.front() ? report.health() : run.health()) == Health::kInconclusive;
  }
  return inconclusive ? exit_code::kInconclusive : exit_code::kHealthy;
}

RenderOptions rendering_of(const OutputOptions& options, const Streams& streams) {
  const SourceRoot source = source_root();
  return {.color = want_color(options.color, streams),
          .brief = options.brief,
          .fail_on = severity_of(options.fail_on),
          .root = source.root,
          .folder = source.folder,
          .terminal = is_terminal(streams)};
}

void add_output_flags(CLI::App& app, OutputOptions& options) {
  app.add_option("--format", options.format, "What stdout gets")
      ->check(CLI::IsMember(format_names()))
      ->capture_default_str();
  app.add_option(
         "--report", options.reports,
         "Write the report to FILE too (.json, .xml for JUnit, .sarif, .html, .md, .prom, .txt, or "
         "FORMAT=FILE); repeatable")
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
  keep_selected(report, options);
  const auto rendering = rendering_of(options, streams);
  std::string text = render(report, *find_format(options.format), rendering);
  if (options.quiet && options.format == "text")
    text.erase(0, text.rfind('\n', text.size() - 2) + 1);
  streams.out << text << std::flush;
  if (!streams.out)
    throw Error("the report could not be written to standard output; is its disk full?");
  auto whole = rendering;
  whole.color = whole.brief = whole.terminal = false;
  for (const auto& entry : options.reports) {
    const auto [format, file] = parse_report_file(entry);
    write_file(file, render(report, *format, whole));
  }
  if (options.format == "github") write_step_summary(report, rendering);
  return exit_code_of(report, options);
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
