// SPDX-License-Identifier: BSD-3-Clause
#include "tool/cli/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <optional>
#include <sstream>

#include "lib/diagnose/rule.h"
#include "lib/error.h"
#include "lib/log.h"
#include "lib/report/compare/make_report.h"
#include "lib/report/value/verdict.h"
#include "tool/cli/misspelling.h"
#include "tool/cli/source_root.h"

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

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const auto& format : all_formats()) names.emplace_back(format.name);
  return names;
}

std::string suffixes() {
  std::string list;
  for (const auto& format : all_formats()) {
    if (!format.suffix.empty())
      list += fmt::format("{}{}", list.empty() ? "" : ", ", format.suffix);
  }
  return list;
}

// Checked before anything runs, and before a file named by mistake is opened for writing.
std::string known_suffix(const std::string& text) {
  if (parse_report_file(text).format != nullptr) return {};
  if (const auto equals = text.find('='); equals != std::string::npos) {
    const auto meant = did_you_mean(text.substr(0, equals), format_names());
    if (!meant.empty()) return fmt::format("{} is not a format{}", text.substr(0, equals), meant);
  }
  return fmt::format("{}: the suffix selects the format; use {}, or name it: gitlab={}", text,
                     suffixes(), text);
}

// The lowest severity that fails; nothing for "never".
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
  if (find_rule(code) != nullptr) return {};
  const auto meant = did_you_mean_rule(code);
  return fmt::format("{} is not a rule{}", code,
                     meant.empty() ? "; `ddp-doctor rules` lists them" : meant);
}

}  // namespace

void let_selected_decide(const CLI::App& app, OutputOptions& options) {
  if (!options.select.empty() && app.get_option("--fail-on")->count() == 0)
    options.fail_on = name_of(Severity::kAdvice);
}

bool is_selected(const Finding& finding, const OutputOptions& options) {
  const auto names = [&](const std::vector<std::string>& list) {
    return std::any_of(list.begin(), list.end(), [&](const auto& word) {
      return word == finding.rule || word == finding.name;
    });
  };
  return !names(options.ignore) && (options.select.empty() || names(options.select));
}

void keep_selected(Report& report, const OutputOptions& options) {
  if (options.select.empty() && options.ignore.empty()) return;
  select_findings(report, [&](const Finding& finding) { return is_selected(finding, options); });
}

namespace {

// Atomically, so that nobody reads half of it; but a pipe or a device is only written to.
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
  throw Error(
      fmt::format("--report {}: cannot be written; check the directory and its free disk space",
                  file.string()));
}

// GitHub shows this file on the page of the workflow run, unless it exceeds 1 MiB.
void write_step_summary(const Report& report, RenderOptions options) {
  constexpr std::size_t kMax = 1024 * 1024;
  const char* file = std::getenv("GITHUB_STEP_SUMMARY");
  if (file == nullptr || *file == '\0') return;
  options.brief = true;
  std::ostringstream text;
  render_markdown(report, options, text);
  std::ofstream out(file, std::ios::app);
  out << text.str().substr(0, kMax / 2);
  out.close();
  if (!out)
    log::warn("the summary of the step cannot be written to {} (GITHUB_STEP_SUMMARY)", file);
}

}  // namespace

namespace {

// And what to do; empty where files can be created in `folder`.
std::string why_not_writable(const std::filesystem::path& folder) {
  std::error_code failure;
  const auto status = std::filesystem::status(folder, failure);
  const bool absent = status.type() == std::filesystem::file_type::not_found;
  const auto parent = folder.has_parent_path() ? folder.parent_path() : std::filesystem::path(".");
  if (absent && parent != folder) {
    const auto problem = why_not_writable(parent);
    if (problem.find(" is not a writable ") != std::string::npos) return problem;
  }
  if (absent) return fmt::format("the directory {} does not exist: create it", folder.string());
  if (std::filesystem::is_directory(status) && access(folder.c_str(), W_OK | X_OK) == 0) return {};
  return fmt::format("{} is not a writable directory: name another, or change its permissions",
                     folder.string());
}

}  // namespace

void prepare_reports(const OutputOptions& options) {
  for (const auto& entry : options.reports) {
    const auto file = parse_report_file(entry).file;
    const auto folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
    if (const auto problem = why_not_writable(folder); !problem.empty())
      throw Error(fmt::format("--report {}: cannot be written: {}", file.string(), problem));
    std::error_code failure;
    if (std::filesystem::is_regular_file(std::filesystem::symlink_status(file, failure)) &&
        !std::filesystem::remove(file, failure) && failure)
      throw Error(fmt::format("--report {}: the previous report cannot be removed ({}); remove it",
                              file.string(), failure.message()));
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
  const bool cut_short = inconclusive || report.purpose == Purpose::kCompare;
  if (report.interrupted && cut_short) return exit_code::kInterrupted;
  return inconclusive && options.inconclusive == "fail" ? exit_code::kInconclusive
                                                        : exit_code::kHealthy;
}

RenderOptions rendering_of(const OutputOptions& options, const Streams& streams) {
  const SourceRoot source = source_root();
  return {.color = want_color(options.color, streams),
          .brief = options.brief,
          .fail_on = severity_of(options.fail_on),
          .root = source.root,
          .folder = source.folder,
          .terminal = is_terminal(streams),
          .verbose = options.verbose > 0};
}

void add_output_flags(CLI::App& app, OutputOptions& options) {
  app.add_option("--format", options.format, "Format of the report on stdout")
      ->check(CLI::IsMember(format_names()))
      ->capture_default_str();
  app.add_option(
         "--report", options.reports,
         fmt::format("Also write the report to FILE, in the format of its suffix ({}), or to "
                     "FORMAT=FILE; repeatable",
                     suffixes()))
      ->check(known_suffix)
      ->allow_extra_args(false)
      ->type_name("FILE");
  app.add_option("--fail-on", options.fail_on, "Lowest severity that gives exit code 1")
      ->check(CLI::IsMember({"error", "warning", "advice", "never"}))
      ->capture_default_str();
  app.add_option("--select", options.select, "Report these rules only")
      ->check(known_rule)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("CODE");
  app.add_option("--ignore", options.ignore, "Do not report these rules")
      ->check(known_rule)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("CODE");
  app.add_option("--color", options.color, "Color the text report")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->capture_default_str();
  // CLI11 2.4 counts a flag that is bound to a number as given, always.
  app.add_flag_function(
      "-v,--verbose", [&options](std::int64_t times) { options.verbose = static_cast<int>(times); },
      "Print every detail of the report, and log to stderr what ddp-doctor does; -vv logs what it "
      "tries, for a bug report. check and bisect then pass on what the program writes");
  app.add_flag("-q,--quiet", options.quiet, "Print the verdict only")->excludes("--verbose");
}

void add_inconclusive_flag(CLI::App& app, OutputOptions& options) {
  app.add_option("--inconclusive", options.inconclusive,
                 "Whether an inconclusive run, such as one without a complete step, fails (exit "
                 "code 3) or passes (0, and the verdict says so)")
      ->check(CLI::IsMember({"fail", "pass"}))
      ->capture_default_str();
}

int deliver(Report report, const OutputOptions& options, Streams streams) {
  keep_selected(report, options);
  const auto rendering = rendering_of(options, streams);
  std::string text = render(report, *find_format(options.format), rendering);
  const bool verdict_last = options.format == "text" || options.format == "github";
  if (verdict_last && text.ends_with('\n') && report.health() == Health::kInconclusive &&
      exit_code_of(report, options) == exit_code::kHealthy)
    text.insert(text.size() - 1, " (passes: --inconclusive pass)");
  if (options.quiet && options.format == "text")
    text.erase(0, text.rfind('\n', text.size() - 2) + 1);
  streams.out << text << std::flush;
  if (!streams.out)
    throw Error("the report could not be written to standard output; check its free disk space");
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
