// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "lib/error.h"
#include "lib/report/render/bisected.h"
#include "tool/bisect/bisection.h"
#include "tool/bisect/git.h"
#include "tool/bisect/model_bisection.h"
#include "tool/cli/command.h"
#include "tool/cli/gate.h"
#include "tool/cli/output.h"
#include "tool/cli/program_arguments.h"
#include "tool/cli/usage_advice.h"
#include "tool/launch/isolation.h"
#include "tool/launch/run_folder.h"
#include "tool/system/interrupt.h"
#include "tool/system/shell_words.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;
using Outcome = JudgedCommit::Outcome;

struct BisectOptions {
  ProgramArguments arguments;
  GateOptions gate;
  OutputOptions output;
  std::string good, bad;
  bool model = false;
  TrialFlags trials;
};

class WorkingFolder {
 public:
  explicit WorkingFolder(const fs::path& folder) : before_(fs::current_path()) {
    fs::current_path(folder);
  }
  ~WorkingFolder() {
    std::error_code ignored;
    fs::current_path(before_, ignored);
  }
  WorkingFolder(const WorkingFolder&) = delete;
  WorkingFolder& operator=(const WorkingFolder&) = delete;

 private:
  const fs::path before_;
};

// Makes Python find the modules of the commit, not those of the user's checkout, and write no .pyc
// files: files of two commits may have the same size and time.
void prepare_python(const Bisection& bisection) {
  setenv("PYTHONDONTWRITEBYTECODE", "1", 1);
  const char* given = std::getenv("PYTHONPATH");
  if (given == nullptr) return;
  std::string moved;
  for (const auto& entry : split(given, ':')) {
    const auto inside = fs::path(entry).lexically_relative(bisection.repository());
    const bool ours = fs::path(entry).is_absolute() && !inside.empty() && *inside.begin() != "..";
    moved += (moved.empty() ? "" : ":") + (ours ? (bisection.worktree() / inside).string() : entry);
  }
  setenv("PYTHONPATH", moved.c_str(), 1);
}

// "-- train.py --lr 1" names a program, "-- torchrun train.py" is a command.
void take_program(ProgramArguments& arguments, Call& call) {
  if (!call.words || call.words->empty() || !arguments.program.empty()) return;
  const fs::path first = call.words->front();
  if (first.extension() != ".py" && first.extension() != ".pt") return;
  arguments.program = first;
  call.words->erase(call.words->begin());
}

JudgedCommit judge(const CLI::App& app, const BisectOptions& options, const Call& call,
                   Bisection& bisection, const std::string& commit) {
  JudgedCommit judged{.commit = commit,
                      .title = git(bisection.repository(), {"log", "-1", "--format=%s", commit})};
  try {
    const WorkingFolder there(bisection.check_out(commit));
    const ExaminationMode how{.pass_on = options.output.verbose > 0};
    const int code = examine_program(app, options.arguments, how, call, [&](Report report) {
      const auto rendering = rendering_of(options.output, call.streams);
      apply_gate(report, options.gate, rendering, call.streams.err);
      keep_selected(report, options.output);
      judged.findings = report.findings;
      const int code = exit_code_of(report, options.output);
      if (code == exit_code::kInconclusive) judged.reason = report.runs.front().outcome;
      return code;
    });
    if (code == exit_code::kInterrupted) throw Interrupted("interrupted");
    judged.outcome = code == exit_code::kHealthy ? Outcome::kGood
                     : code == exit_code::kSick  ? Outcome::kBad
                                                 : Outcome::kSkipped;
  } catch (const Error& error) {
    judged.reason = error.what();
  }
  judged.reason = judged.reason.substr(0, judged.reason.find('\n'));
  return judged;
}

// Keeps the findings that the flags select; the others are not what is searched for.
void keep_what_fails(JudgedCommit& judged, const RenderOptions& rendering) {
  std::erase_if(judged.findings, [&](const Finding& finding) {
    return !rendering.fail_on || finding.severity < *rendering.fail_on;
  });
}

int bisect(const CLI::App& app, BisectOptions& options, Call call) {
  check_gate(options.gate);
  if (!options.output.reports.empty() || options.arguments.out)
    throw Error(
        "bisect runs many examinations and prints its own report; remove --report and --out, and "
        "use --format json for a machine-readable report");
  if (options.gate.update_baseline)
    throw Error("bisect does not update a baseline; remove --update-baseline");
  if (options.gate.baseline) options.gate.baseline = fs::absolute(*options.gate.baseline);
  take_program(options.arguments, call);
  const InterruptGuard interrupt;
  Bisection bisection(options.good, options.bad);
  if (options.arguments.program.is_absolute())
    throw Error(
        fmt::format("{}: an absolute path is the same file for every commit; give a path relative "
                    "to the current directory",
                    options.arguments.program.string()));
  prepare_python(bisection);
  const auto rendering = rendering_of(options.output, call.streams);
  Bisected bisected{.commits = bisection.commits()};
  const auto examine = [&](const std::string& commit) {
    JudgedCommit judged = judge(app, options, call, bisection, commit);
    keep_what_fails(judged, rendering);
    if (interrupt.requested()) throw Interrupted("interrupted; the temporary worktree was removed");
    call.streams.err << fmt::format("{} {} \"{}\": {}\n", bisected.examined.size() + 1,
                                    commit.substr(0, 10), judged.title, describe(judged))
                     << std::flush;
    bisected.examined.push_back(judged);
    return judged.outcome;
  };
  while (const auto commit = bisection.next()) {
    switch (examine(*commit)) {
      case Outcome::kGood:
        bisection.good(*commit);
        break;
      case Outcome::kBad:
        bisection.bad(*commit);
        break;
      case Outcome::kSkipped:
        bisection.skip(*commit);
        break;
    }
  }
  bisected.first_bad = bisection.first_bad();
  bisected.suspects = bisection.left();
  // If the bad end is the first bad commit, it has not been examined yet.
  if (bisected.find(bisected.first_bad) == nullptr) {
    const Outcome outcome = examine(bisected.first_bad);
    if (outcome == Outcome::kGood)
      throw Error(fmt::format(
          "{} is not bad: nothing that fails was found there; check --select, --fail-on and "
          "the program's arguments",
          options.bad));
    if (outcome == Outcome::kSkipped)
      throw Error(fmt::format(
          "{} could not be examined, so no commit is known to be bad ({}); name a commit "
          "at which the program runs",
          options.bad, bisected.examined.back().reason));
  }
  const auto& repository = bisection.repository();
  bisected.parent = git(repository, {"rev-parse", bisected.first_bad + "^"});
  bisected.description =
      git(repository,
          {"show", "--stat", "--no-color",
           "--format=commit %H%nAuthor: %an <%ae>%nDate: %ad%n%n    %s%n", bisected.first_bad});
  if (options.output.format == "json") {
    render_json(bisected, call.streams.out);
  } else {
    render_text(bisected, call.streams.out);
  }
  return bisected.suspects.empty() ? exit_code::kHealthy : exit_code::kInconclusive;
}

int bisect_modules(const CLI::App& app, BisectOptions& options, Call call) {
  take_program(options.arguments, call);
  if (options.arguments.program.extension() == ".pt")
    throw Error(
        fmt::format("{0}: modules of a TorchScript program cannot be frozen; `ddp-doctor run {0}` "
                    "names its unused parameters",
                    options.arguments.program.string()));
  const ExaminationMode how{.pass_on = options.output.verbose > 0};
  const InterruptGuard interrupt;
  const RunFolder records(options.arguments.out);
  std::optional<Isolation> isolation;  // the first run is the program as it is, where it is
  if (!options.trials.in_place) {
    ProgramOptions program{.program = options.arguments.program, .words = options.arguments.words};
    if (call.words)
      program.words.insert(program.words.end(), call.words->begin(), call.words->end());
    isolation.emplace(std::vector{program}, records.path());
  }
  int count = 0;
  const ModelBisected bisected = bisect_model([&](const std::vector<std::string>& frozen) {
    ProgramArguments arguments = options.arguments;
    arguments.out = records.path() / fmt::format("{:02}", count);
    const auto view = isolation && count > 0 ? isolation->view() : nullptr;
    ++count;
    arguments.flags.program.view = view.get();
    if (!frozen.empty())
      arguments.flags.program.strategy = fmt::format("freeze={}", fmt::join(frozen, ","));
    std::optional<RunReport> run;
    const int code = examine_program(app, arguments, how, call, [&](const Report& report) {
      run = report.runs.front();
      return exit_code::kHealthy;
    });
    if (!run || interrupt.requested() || code == exit_code::kInterrupted)
      throw Interrupted("interrupted");
    call.streams.err << fmt::format("{}: {}\n",
                                    frozen.empty() ? "unchanged" : arguments.flags.program.strategy,
                                    run->outcome)
                     << std::flush;
    return *run;
  });
  if (options.output.format == "json") {
    render_json(bisected, call.streams.out);
  } else {
    render_text(bisected, call.streams.out);
  }
  return bisected.unused && !bisected.smallest ? exit_code::kInconclusive : exit_code::kHealthy;
}

}  // namespace

Action setup_bisect(CLI::App& app) {
  auto options = std::make_shared<BisectOptions>();
  options->arguments.strategies = {"ddp"};
  options->arguments.flags.every = 1;
  app.add_option("--good", options->good, "A commit without the finding")->type_name("REV");
  app.add_option("--bad", options->bad, "A later commit with the finding")
      ->type_name("REV")
      ->capture_default_str();
  app.add_flag(
      "--model", options->model,
      "Find the modules that explain unused parameters instead of the commit: runs PROGRAM with "
      "fewer and fewer modules frozen. This changes what is trained");
  add_in_place_flag(app, options->trials);
  add_program_arguments(app, options->arguments);
  add_gate_flags(app, options->gate);
  add_output_flags(app, options->output);
  app.get_option("--format")->check(CLI::IsMember({"text", "json"}));
  add_environment_defaults(app);
  return [options, &app](const Call& call) {
    if (options->model) return bisect_modules(app, *options, call);
    if (options->good.empty()) {
      if (const auto advice = usage_advice(app, call); advice && !app.remaining().empty())
        throw CLI::ExtrasError(*advice, CLI::ExitCodes::ExtrasError);
      throw CLI::RequiredError("--good");
    }
    if (options->bad.empty()) options->bad = "HEAD";
    let_selected_decide(app, options->output);
    return bisect(app, *options, call);
  };
}

}  // namespace ddp_doctor
