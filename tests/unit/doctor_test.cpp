// SPDX-License-Identifier: BSD-3-Clause
// Whole command lines, in-process: those that need no rank.

#include "tool/cli/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lib/diagnose/rule.h"
#include "lib/error.h"
#include "lib/record/run_info.h"
#include "lib/record/writer.h"
#include "tests/temporary_folder.h"
#include "tool/cli/command.h"
#include "tool/cli/program_file.h"
#include "tool/examine/examination.h"
#include "tool/launch/run_folder.h"

namespace ddp_doctor {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

struct Outcome {
  int code;
  std::string out;
  std::string err;
};

Outcome doctor(const std::vector<std::string>& args) {
  std::ostringstream out, err;
  const int code = run_doctor(args, {out, err});
  return {code, out.str(), err.str()};
}

TEST(Doctor, AnswersVersionAndHelp) {
  EXPECT_EQ(doctor({"--version"}).code, 0);
  EXPECT_THAT(doctor({"--version"}).out, StartsWith("ddp-doctor "));
  EXPECT_EQ(doctor({"run", "--help"}).code, 0);
  EXPECT_THAT(doctor({"run", "--help"}).out, HasSubstr("--strategies"));
}

TEST(Doctor, EndsUsageErrorsInANextAction) {
  for (const std::vector<std::string>& args : {std::vector<std::string>{},
                                               {"cure"},
                                               {"run"},
                                               {"run", "x.pt", "--steps", "0"},
                                               {"run", "x.pt", "--strategies", "warp"}}) {
    const auto outcome = doctor(args);
    EXPECT_EQ(outcome.code, exit_code::kCouldNotRun);
    EXPECT_THAT(outcome.err, StartsWith("ddp-doctor: error: "));
    EXPECT_THAT(outcome.err, HasSubstr("--help` for its "));
    EXPECT_EQ(outcome.out, "");
  }
}

std::string complaint(const std::vector<std::string>& args) { return doctor(args).err; }

// The command that a complaint proposes, as words; that it is not refused in turn is checked.
std::vector<std::string> proposal(const std::vector<std::string>& args) {
  const std::string text = complaint(args);
  const auto at = text.find(": ddp-doctor ");
  if (at == std::string::npos) return {"nothing proposed: " + text};
  std::istringstream in(text.substr(at + 13, text.find('\n', at) - at - 13));
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  const std::string next = complaint(words);
  EXPECT_THAT(next, AnyOf(HasSubstr(": no such file"), HasSubstr(": no such command"))) << text;
  return words;
}

TEST(Usage, KnowsAMisspeltFlag) {
  EXPECT_THAT(complaint({"run", "--evry", "3", "train.py"}),
              HasSubstr("unknown option --evry; did you mean --every? Try: ddp-doctor "
                        "run --every 3 train.py\n"));
  EXPECT_THAT(complaint({"report", "--fromat=json", "run"}),
              HasSubstr("did you mean --format? Try: ddp-doctor report --format=json run\n"));
  EXPECT_THAT(complaint({"check", "--max-drfit", "0"}), HasSubstr("did you mean --max-drift?"));
  EXPECT_THAT(
      complaint({"run", "missing.py", "--evry=3"}),
      HasSubstr("Try: ddp-doctor run --every=3 missing.py\nIf it belongs to missing.py, put "
                "it after --: ddp-doctor run missing.py -- --evry=3\n"));
  EXPECT_THAT(complaint({"run", "train.py", "--epochs", "3"}), Not(HasSubstr("did you mean")));
  EXPECT_THAT(complaint({"run", "train.py", "--lt", "3"}), Not(HasSubstr("did you mean")));
}

TEST(Usage, KnowsWhatOtherLaunchersCallTheNumberOfRanks) {
  for (const char* flag : {"--nproc", "-n", "-np", "--np", "--num_processes", "--world-size"}) {
    EXPECT_THAT(
        complaint({"run", flag, "2", "missing.py"}),
        HasSubstr(std::string("unknown option ") + flag + "; did you mean --nproc-per-node?"));
    EXPECT_THAT(proposal({"run", flag, "2", "missing.py"}),
                ElementsAre("run", "--nproc-per-node", "2", "missing.py"));
  }
  EXPECT_THAT(proposal({"check", "-n", "4", "missing.py", "--epochs", "3"}),
              ElementsAre("check", "--nproc-per-node", "4", "missing.py", "--", "--epochs", "3"));
  EXPECT_THAT(complaint({"run", "--nproc_per_node", "2", "missing.py"}),
              HasSubstr("missing.py: no such file"));
  EXPECT_THAT(complaint({"demo", "orphan", "-n", "4"}),
              HasSubstr("did you mean --nproc-per-node? Try: ddp-doctor demo orphan "
                        "--nproc-per-node 4\n"));
  setenv("DDP_DOCTOR_NPROC", "4", 1);
  EXPECT_THAT(complaint({"run", "missing.py"}),
              HasSubstr("DDP_DOCTOR_NPROC has no effect; did you mean DDP_DOCTOR_NPROC_PER_NODE?"));
  unsetenv("DDP_DOCTOR_NPROC");
}

TEST(Usage, GivesTorchrunItsFlags) {
  const auto answer = complaint({"run", "--nnodes", "2", "--every", "1", "--nproc-per-node", "4",
                                 "train.py", "--epochs", "3"});
  EXPECT_THAT(answer, HasSubstr("--nnodes is a flag of torchrun; give it to torchrun: ddp-doctor "
                                "run --every 1 -- torchrun --nnodes 2 --nproc_per_node 4 train.py "
                                "--epochs 3\n"));
  EXPECT_THAT(complaint({"run", "--standalone", "train.py"}),
              HasSubstr("ddp-doctor run -- torchrun --standalone train.py\n"));
  EXPECT_THAT(complaint({"run", "--node-rank=1", "--max-restarts", "0", "train.py"}),
              HasSubstr("torchrun --node_rank=1 --max_restarts 0 train.py\n"));
}

TEST(Usage, PutsDashesBeforeACommand) {
  EXPECT_THAT(complaint({"run", "--every", "2", "env", "--nproc-per-node", "2", "train.py"}),
              HasSubstr("env is a command: put -- before it: ddp-doctor run --every 2 -- env "
                        "--nproc-per-node 2 train.py\n"));
  EXPECT_THAT(
      complaint({"run", "-m", "package.train", "--epochs", "3"}),
      HasSubstr("ddp-doctor run --nproc-per-node 2 -- python -m package.train --epochs 3\n"));
}

TEST(Usage, PutsTheProgramsArgumentsAfterDashes) {
  EXPECT_THAT(proposal({"run", "missing.py", "--lr", "0.1", "--epochs", "3"}),
              ElementsAre("run", "missing.py", "--", "--lr", "0.1", "--epochs", "3"));
  EXPECT_THAT(proposal({"run", "missing.py", "--lr", "0.1"}),
              ElementsAre("run", "missing.py", "--", "--lr", "0.1"));
  EXPECT_THAT(
      proposal({"run", "--epochs", "3", "--every", "2", "missing.py", "--seed=1", "fast"}),
      ElementsAre("run", "--every", "2", "missing.py", "--", "--epochs", "3", "--seed=1", "fast"));
  EXPECT_THAT(proposal({"run", "missing.py", "--epochs", "3", "--", "--lr", "1"}),
              ElementsAre("run", "missing.py", "--", "--epochs", "3", "--lr", "1"));
  EXPECT_THAT(proposal({"run", "--epochs", "3", "--", "no-such-command"}),
              ElementsAre("run", "--", "no-such-command", "--epochs", "3"));
  EXPECT_THAT(complaint({"run", "missing.py", "--name", "two words"}),
              HasSubstr("ddp-doctor run missing.py -- --name 'two words'\n"));
  EXPECT_THAT(complaint({"run", "missing.pt", "--epochs", "3"}),
              HasSubstr("a TorchScript program takes no arguments; remove"));
  for (const auto* command : {"run", "parity", "compare"}) {
    for (const auto* flag : {"--strategy", "--strategies", "--epochs"})
      EXPECT_THAT(complaint({command, "missing.pt", flag, "ddp"}), Not(HasSubstr("--: "))) << flag;
  }
}

TEST(Usage, KnowsMisspeltNames) {
  for (const auto& [args, meant] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"rnu", "t.py"}, "rnu is not a command; did you mean run?"},
           {{"compere"}, "did you mean compare?"},
           {{"train.py"}, "to examine it: ddp-doctor run train.py"},
           {{"explain", "wraper-bypassed"}, "did you mean wrapper-bypassed?"},
           {{"explain", "ddp1O1"}, "did you mean DDP101?"},
           {{"run", "t.py", "--select", "DDP1O1"}, "DDP1O1 is not a rule; did you mean DDP101?"},
           {{"run", "t.pt", "--strategies", "ddp-find-unusd"}, "did you mean ddp-find-unused?"},
           {{"demo", "curiculum"}, "there is no demo curiculum; did you mean curriculum?"},
           {{"demo", "orfan"}, "did you mean orphan?"},
           {{"explain", "DDP11"}, "DDP11 is not a rule; there are DDP110 to DDP116;"},
           {{"explain", "DDP117"}, "DDP117 is not a rule; there are DDP101 to DDP116;"},
           {{"explain", "201"}, "did you mean DDP201?"},
           {{"explain", "wraper"}, "did you mean wrapper-bypassed?"},
           {{"explain", "DDP999"}, "DDP999 is not a rule; `ddp-doctor rules` lists them"},
           {{"run", "t.py", "--format", "jsn"}, "--format jsn is not possible; did you mean json?"},
           {{"run", "t.py", "--report", "htlm=x"}, "htlm is not a format; did you mean html?"},
           {{"run", "--stratgy", "ddp", "t.pt"}, "Try: ddp-doctor run --strategies ddp t.pt\n"},
           {{"bisect", "--goood", "HEAD"}, "unknown option --goood; did you mean --good?"},
           {{"help"}, "did you mean `ddp-doctor --help`?"},
           {{"help", "run"}, "did you mean `ddp-doctor run --help`?"},
           {{"fix", "t.py"}, "did you mean `ddp-doctor run --fix t.py`?"},
           {{"diff", "--help"}, "did you mean `ddp-doctor compare --help`?"},
           {{"--verison"}, "unknown option --verison; did you mean --version?"},
           {{"version"}, "did you mean `ddp-doctor --version`?"},
           {{"--bogus"}, "unknown option --bogus; name a command: ddp-doctor run train.py"},
           {{}, "name a command: ddp-doctor run train.py"},
           {{"torchrun", "t.py"}, ": ddp-doctor run -- torchrun t.py\n"},
           {{"run", "--every", "3x", "t.py"}, "--every 3x is not a number from 1 to 1000000"},
           {{"--config", "missing.toml", "rules"},
            "--config missing.toml: cannot be read; check the path"}})
    EXPECT_THAT(complaint(args), HasSubstr(meant));
  EXPECT_THAT(complaint({"explain", "DDP12"}),
              AnyOf(HasSubstr("did you mean DDP1"), HasSubstr("`ddp-doctor rules` lists them")));
  TemporaryFolder folder;
  const std::string program = folder.path() / "t.py";
  std::ofstream{program};
  EXPECT_THAT(complaint({"compare", program + "@ddp-static"}),
              HasSubstr("did you mean ddp-static-graph?"));
  EXPECT_THAT(complaint({"compare", program + "@"}),
              HasSubstr("name a strategy after @: " + program + "@ddp-find-unused\n"));
  EXPECT_THAT(complaint({"run", program + "@ddp"}),
              HasSubstr(": ddp-doctor compare " + program + " @ddp\n"));
  EXPECT_THAT(complaint({"run", "--every", "2", "--", program, "--lr", "1"}),
              HasSubstr(": ddp-doctor run --every 2 " + program + " -- --lr 1\n"));
}

TEST(Usage, RefusesTablesWithoutANameInTheConfiguration) {
  TemporaryFolder folder;
  const std::string config = folder.path() / "ddp-doctor.toml";
  for (const char* text : {"[= 1]", "[ {", "[.a]", "[[ #"}) {
    std::ofstream{config} << text;
    EXPECT_THAT(complaint({"--config", config, "rules"}),
                HasSubstr("Error while parsing key: expected bare key starting character"))
        << text;
  }
}

TEST(Usage, RefusesLettersBeyondAsciiInNamesOfTheConfiguration) {
  TemporaryFolder folder;
  const std::string config = folder.path() / "ddp-doctor.toml";
  for (const char* text : {"für = 1", "ä", "\xef\xba\xbf", "ァ = 1", "[run]\nevery = ä"}) {
    std::ofstream{config} << text;
    EXPECT_THAT(complaint({"--config", config, "rules"}), HasSubstr("Error while parsing"));
  }
}

TEST(Usage, AnswersMistakesAmongSeveralPrograms) {
  for (const auto& [args, meant] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"compare", "t.py", "--epochs", "3"},
            "unknown option --epochs; put the program's own arguments after --: ddp-doctor "
            "compare t.py -- --epochs 3\n"},
           {{"compare", "t.py", "t.py", "--lr", "0.1"},
            "--lr is only for TorchScript programs; put the program's own arguments after --: "
            "ddp-doctor compare t.py t.py -- --lr 0.1\n"},
           {{"explain", "-", "--program", "t.py", "--epochs", "3"},
            "ddp-doctor explain - --program t.py -- --epochs 3\n"},
           {{"parity", "t.py", "--lr", "0.1"},
            "--lr is only for TorchScript programs; put the program's own arguments after --: "
            "ddp-doctor parity t.py -- --lr 0.1\n"},
           {{"compare", "t.py", "@ddp", "--nproc", "2"},
            "Try: ddp-doctor compare t.py @ddp --nproc-per-node 2\n"},
           {{"rules", "x"}, "error: unexpected argument x\n"},
           {{"env", "--foo"}, "error: unknown option --foo\n"}})
    EXPECT_THAT(complaint(args), HasSubstr(meant));
}

TEST(Usage, KnowsTheOptionsOfOtherCommands) {
  EXPECT_THAT(complaint({"check", "--fix", "missing.py"}),
              HasSubstr("error: --fix is an option of run: ddp-doctor run --fix missing.py\n"));
  EXPECT_THAT(proposal({"check", "--fix", "missing.py"}),
              ElementsAre("run", "--fix", "missing.py"));
  EXPECT_THAT(proposal({"parity", "--fix", "--every", "3", "missing.py"}),
              ElementsAre("run", "--fix", "--every", "3", "missing.py"));
  EXPECT_THAT(proposal({"run", "--max-drift", "0", "missing.py"}),
              ElementsAre("check", "--max-drift", "0", "missing.py"));
  EXPECT_THAT(proposal({"run", "--max-drift", "0", "--", "no-such-command"}),
              ElementsAre("check", "--max-drift", "0", "--", "no-such-command"));
  EXPECT_THAT(complaint({"run", "missing.py", "--baseline", "b.json"}),
              HasSubstr("ddp-doctor check missing.py --baseline b.json\nOr put the program's own "
                        "arguments after --: ddp-doctor run missing.py -- --baseline b.json\n"));
  // What the other command would not take either is left out.
  EXPECT_THAT(complaint({"check", "--fix", "--max-drift", "0", "missing.py"}),
              HasSubstr("--fix is an option of run: ddp-doctor run --fix train.py\n"));
  EXPECT_THAT(proposal({"run", "missing.py", "--model", "resnet"}),
              ElementsAre("run", "missing.py", "--", "--model", "resnet"));
}

TEST(Usage, SaysHowToExplainWhatIsNoRule) {
  for (const auto& [args, meant] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"explain", "Expected", "to", "have", "finished"},
            ": echo 'Expected to have finished' | ddp-doctor explain -\n"},
           {{"explain", "Expected to have"}, ": echo 'Expected to have' | ddp-doctor explain -\n"},
           {{"explain", "train.log"}, ": ddp-doctor explain - < train.log\n"},
           {{"explain", "-", "train.log"}, ": ddp-doctor explain - < train.log\n"},
           {{"explain", "t.py"}, "t.py is a program; to examine it: ddp-doctor run t.py\n"},
           {{"explain", "DDP101", "DDP102"}, "takes one rule: ddp-doctor explain DDP101\n"},
           {{"rules", "DDP101"}, "a rule's page: ddp-doctor explain DDP101\n"}})
    EXPECT_THAT(complaint(args), HasSubstr(meant));
}

TEST(Usage, NamesASimilarFile) {
  TemporaryFolder folder;
  const std::string program = folder.path() / "train.py", wrong = folder.path() / "trian.py";
  std::ofstream{program};
  for (const char* command : {"run", "check", "parity", "compare"})
    EXPECT_THAT(complaint({command, wrong}),
                HasSubstr(wrong + ": no such file; did you mean " + program + "?\n"));
  EXPECT_THAT(complaint({"run", folder.path() / "other.py"}),
              HasSubstr("other.py: no such file; check the path\n"));
}

TEST(Usage, ReportsAreReadFromJson) {
  TemporaryFolder folder;
  const std::string html = folder.path() / "r.html", program = folder.path() / "t.py";
  std::ofstream{html} << "<html>";
  std::ofstream{program};
  EXPECT_THAT(complaint({"report", html}), HasSubstr("r.html: not a JSON report; "));
  EXPECT_THAT(complaint({"report", program}), HasSubstr(": ddp-doctor run " + program + "\n"));
}

TEST(Usage, GivesAnExampleOfWhatIsMissing) {
  for (const Command& command : all_commands()) {
    const std::string text = complaint({command.name});
    if (text.find("required") == std::string::npos) continue;
    const auto at = text.find(std::string(": ddp-doctor ") + command.name + " ");
    ASSERT_NE(at, std::string::npos) << text;
    std::istringstream in(text.substr(at + 13, text.find('\n', at) - at - 13));
    std::vector<std::string> words;
    for (std::string word; in >> word;) words.push_back(word);
    EXPECT_THAT(complaint(words),
                Not(AnyOf(HasSubstr("required"), HasSubstr("unknown"), HasSubstr("unexpected"))));
  }
  EXPECT_THAT(complaint({"compare"}), HasSubstr("required: ddp-doctor compare train.py fixed.py"));
}

TEST(Usage, ShowsNoInternalsOfTheParser) {
  for (const Command& command : all_commands()) {
    const std::string help = doctor({command.name, "--help"}).out;
    for (const char* word : {"TEXT:", "INT", "FLOAT", "REQUIRED", "Env:", "NONNEGATIVE", "->", "{"})
      EXPECT_THAT(help, Not(HasSubstr(word)));
  }
  EXPECT_THAT(doctor({"check", "--help"}).out, HasSubstr("\n  --inconclusive fail|pass"));
  EXPECT_THAT(doctor({"compare", "--help"}).out,
              HasSubstr("Usage: ddp-doctor compare [OPTIONS] PROGRAM[@STRATEGY] ...\n"));
}

TEST(Usage, RefusesRepeatsWithoutAFix) {
  EXPECT_THAT(complaint({"run", "--repeats", "7", "t.py"}),
              HasSubstr("--repeats is only for --fix: ddp-doctor run --fix --repeats 7 t.py\n"));
}

TEST(Usage, WrapsHelpAtAHundredColumns) {
  for (const char* command : {"run", "check", "bisect", "compare", "report", "explain", "demo"}) {
    std::istringstream help(doctor({command, "--help"}).out);
    for (std::string line; std::getline(help, line);) EXPECT_LE(line.size(), 100u) << line;
  }
  EXPECT_THAT(doctor({"rules", "--help"}).out, Not(HasSubstr("inconclusive")));
}

TEST(Usage, TellsWhyAReportCannotBeWritten) {
  TemporaryFolder folder;
  const std::string missing = folder.path() / "missing";
  EXPECT_THAT(complaint({"run", "--report", missing + "/r.html", "t.py"}),
              HasSubstr("the directory " + missing + " does not exist: create it\n"));
  std::ofstream{missing};
  EXPECT_THAT(complaint({"run", "--report", missing + "/r.html", "t.py"}),
              HasSubstr(missing + " is not a writable directory: name another"));
}

TEST(Usage, SaysHowManyStepsEachCommandRecords) {
  EXPECT_THAT(doctor({"run", "--help"}).out, HasSubstr("[1; for Python and commands 10]"));
  EXPECT_THAT(doctor({"check", "--help"}).out,
              HasSubstr("Examine every Nth step, the first and the last [1]"));
}

TEST(Check, LetsInconclusiveRunsPassWhereItIsTold) {
  const auto fails = doctor({"check", "--", "true"});
  EXPECT_EQ(fails.code, exit_code::kInconclusive);
  EXPECT_THAT(fails.out, Not(HasSubstr("passes")));
  const auto passes = doctor({"check", "--inconclusive", "pass", "--", "true"});
  EXPECT_EQ(passes.code, exit_code::kHealthy);
  EXPECT_THAT(passes.out, HasSubstr("Verdict: inconclusive: "));
  EXPECT_THAT(passes.out, EndsWith(" (passes: --inconclusive pass)\n"));
  EXPECT_EQ(doctor({"check", "--bisect", "--inconclusive", "pass", "--", "true"}).code,
            exit_code::kCannotTell);
}

TEST(Check, ReportsThatTheProbeDidNotStart) {
  const auto outcome = doctor(
      {"check", "--", "sh", "-c", "echo 'ddp-doctor: the probe did not start: no disk' >&2"});
  EXPECT_EQ(outcome.code, exit_code::kInconclusive);
  EXPECT_THAT(outcome.out,
              HasSubstr("nothing could be examined: the probe did not start: no disk\n"));
}

TEST(Log, ShowsDiagnosticsWhereTheyAreAskedFor) {
  EXPECT_EQ(doctor({"run", "--", "true"}).err, "");
  const auto verbose = doctor({"run", "-v", "--", "true"}).err;
  EXPECT_THAT(verbose, ContainsRegex("ddp-doctor: [0-9:.]+ info: starting 1 process"));
  EXPECT_THAT(verbose, Not(HasSubstr(" debug: ")));
  const auto all = doctor({"run", "-vv", "--", "true"}).err;
  EXPECT_THAT(all, ContainsRegex(" debug: process [0-9]+ is the command: .*true\n"));
  EXPECT_THAT(all, HasSubstr(" debug: the command ended: exited 0\n"));
  EXPECT_THAT(doctor({"run", "-q", "-v", "--", "true"}).err, HasSubstr("excludes"));
  setenv("DDP_DOCTOR_LOG", "info", 1);
  EXPECT_THAT(doctor({"run", "--", "true"}).err, HasSubstr(" info: "));
  setenv("DDP_DOCTOR_LOG", "loud", 1);
  EXPECT_THAT(doctor({"rules"}).err,
              HasSubstr("DDP_DOCTOR_LOG=loud: not a level; use off, warn, info or debug"));
  unsetenv("DDP_DOCTOR_LOG");
}

TEST(Doctor, HasAPageForEveryRule) {
  for (const Rule* rule : all_rules()) {
    const auto outcome = doctor({"explain", rule->code});
    EXPECT_EQ(outcome.code, 0);
    EXPECT_THAT(outcome.out, StartsWith("# " + std::string(rule->code) + " " + rule->name + " (" +
                                        name_of(rule->severity)));
  }
}

Outcome explain(const std::string& text, const std::string& format = "text") {
  std::ostringstream out, err;
  std::istringstream in(text);
  const int code = run_doctor({"explain", "-", "--format", format}, {out, err, in});
  return {code, out.str(), err.str()};
}

TEST(Doctor, ExplainsAnErrorTextFromStandardInput) {
  const auto known =
      explain("Parameter at index 5 with name c.bias has been marked as ready twice.");
  EXPECT_EQ(known.code, exit_code::kHealthy);
  EXPECT_THAT(known.out, HasSubstr("\nDDP205 marked-ready-twice: error, likely; from line 1\n"));
  EXPECT_THAT(known.out, HasSubstr("\n    parameter index 5; c.bias\n"));
  EXPECT_THAT(known.out, HasSubstr("\n    ddp-doctor explain DDP205\n"));
  const auto json =
      nlohmann::json::parse(explain("[rank3]: Connection closed by peer \xff", "json").out);
  EXPECT_EQ(json["explanations"][0]["rules"][0], "DDP504");
  EXPECT_EQ(json["explanations"][0]["ranks"][0], 3);
}

TEST(Doctor, SaysWhatToDoWithATextThatNobodyKnows) {
  const auto unknown = explain("ValueError: bad sample 17\n");
  EXPECT_EQ(unknown.code, exit_code::kInconclusive);
  EXPECT_EQ(unknown.out, "");
  EXPECT_THAT(unknown.err, HasSubstr("ValueError: bad sample 17"));
  EXPECT_THAT(unknown.err, HasSubstr("run `ddp-doctor run train.py`"));
  EXPECT_THAT(explain("hello", "json").out, HasSubstr("\"explanations\": []"));
  for (const char* nothing : {"", " \n\r\n\t"}) {
    EXPECT_EQ(explain(nothing).code, exit_code::kCouldNotRun);
    EXPECT_THAT(explain(nothing).err, HasSubstr("ddp-doctor explain - < train.log"));
  }
}

TEST(Doctor, LeavesTheProgramsOwnWordsAlone) {
  EXPECT_THAT(doctor({"run", "missing.py", "--", "--help", "--steps", "0"}).err,
              HasSubstr("missing.py: no such file"));
  EXPECT_THAT(doctor({"run", "--", "no-such-command", "--version"}).err,
              HasSubstr("no-such-command: no such command"));
  EXPECT_THAT(
      doctor({"run", "missing.py", "--epochs", "3"}).err,
      HasSubstr(
          "put the program's own arguments after --: ddp-doctor run missing.py -- --epochs 3"));
}

TEST(Generate, KnowsEveryFlagThatACommandTakes) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const auto outcome = doctor({"generate", shell});
    EXPECT_EQ(outcome.code, exit_code::kHealthy);
    for (const char* word : {"fail-on", "nproc_per_node", "gitlab", "DDP101", "multi_forward"})
      EXPECT_THAT(outcome.out, HasSubstr(word)) << shell;
    EXPECT_THAT(outcome.out, Not(HasSubstr("Print the manual page"))) << shell;
  }
  EXPECT_THAT(doctor({"generate", "man"}).out,
              HasSubstr("\\fB\\-\\-fail\\-on\\fR \\fIerror|warning|advice|never\\fR\n"));
}

TEST(ProgramFile, IsToldFromWhatItIsNot) {
  TemporaryFolder folder;
  const auto refusal = [&](const std::string& name, const std::string& content) -> std::string {
    const auto file = folder.path() / name;
    std::ofstream(file, std::ios::binary) << content;
    try {
      kind_of_program(file);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal("empty.pt", ""), HasSubstr("the file is empty"));
  EXPECT_THAT(refusal("legacy.pt", "\x80\x02}q"), HasSubstr("a Python pickle"));
  EXPECT_THAT(refusal("trainer",
                      "\x7f"
                      "ELF"),
              HasSubstr("put it after --"));
  EXPECT_THAT(refusal("launcher", "#!/bin/sh\n"), HasSubstr("put it after --"));
  EXPECT_THAT(refusal("notes.pt", "hello"), HasSubstr("does not begin like a zip archive"));
  EXPECT_EQ(refusal("program.pt", "PK\x03\x04...."), "");
  EXPECT_EQ(kind_of_program(folder.path() / "program.pt"), ProgramKind::kTorchScript);
  EXPECT_EQ(refusal("train.py", "#!/usr/bin/env python3\n"), "");
  EXPECT_EQ(kind_of_program(folder.path() / "train.py"), ProgramKind::kPython);
}

TEST(RunFolder, RemovesATemporaryOneAndKeepsTheUsers) {
  std::filesystem::path temporary;
  {
    RunFolder folder(std::nullopt);
    temporary = folder.path();
    EXPECT_TRUE(std::filesystem::exists(temporary));
  }
  EXPECT_FALSE(std::filesystem::exists(temporary));

  TemporaryFolder parent;
  const auto mine = parent.path() / "a" / "b";
  { RunFolder folder(mine); }
  EXPECT_TRUE(std::filesystem::exists(mine));
  EXPECT_EQ(std::filesystem::status(mine).permissions(), std::filesystem::perms::owner_all);
}

TEST(Examination, RefusesADamagedFact) {
  TemporaryFolder folder;
  const auto run = folder.path() / "00-as-is";
  std::filesystem::create_directory(run);
  RunInfo info;
  info.strategy = "as-is";
  info.program = "train.py";
  for (const int rank : {0, 1}) {
    RecordHeader header;
    header.rank = rank;
    header.world_size = info.world_size = 2;
    header.probe = "python";
    RecordWriter writer(run, header);
    writer.write_tensors({{0, "weight", "parameter", "float32", {1}, 1, true, {}, ""}});
    for (int number : {0, 1, 2}) {
      StepRecord step;
      step.step = number;
      step.observations = {{0, Stage::kWeight, {}}};
      writer.write_step(step);
    }
    writer.write_fact({1, "optimizer 0", "tensors", "5"});
  }
  save_run_info(run, info);
  try {
    read_examination(folder.path());
    ADD_FAILURE() << "it was read";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("the record is damaged"), HasSubstr("repeat")));
  }
}

TEST(RunInfo, SurvivesARoundTrip) {
  TemporaryFolder folder;
  RunInfo run;
  run.index = 2;
  run.program = "a \"b\".pt";
  run.strategy = "bypass";
  run.world_size = 3;
  run.steps_wanted = 9;
  run.settings = {{"lr", "0.1"}};
  run.exits = {{1, RankExit::Kind::kSignaled, 9, 123, 0, "", "last\nwords \xff"}};
  run.notes = {"rank 1 had finished"};
  run.failure = "no";
  save_run_info(folder.path(), run);
  const RunInfo read = load_run_info(folder.path());
  EXPECT_EQ(read.index, 2);
  EXPECT_EQ(read.program, run.program);
  EXPECT_EQ(read.settings, run.settings);
  ASSERT_EQ(read.exits.size(), 1u);
  EXPECT_EQ(read.exits[0].kind, RankExit::Kind::kSignaled);
  EXPECT_EQ(read.exits[0].time_ns, 123);
  EXPECT_EQ(read.notes, run.notes);
  EXPECT_EQ(read.failure, run.failure);
}

TEST(RunInfo, GathersTheEndsThatRanksLeft) {
  TemporaryFolder folder;
  save_rank_exit(folder.path(), {10, RankExit::Kind::kExited, 3});
  save_rank_exit(folder.path(), {2, RankExit::Kind::kSignaled, 9});
  std::ofstream(folder.path() / "rank-00003.exit") << "{";
  const auto exits = load_rank_exits(folder.path());
  ASSERT_EQ(exits.size(), 2u);
  EXPECT_EQ(exits[0].rank, 2);
  EXPECT_EQ(exits[0].code, 9);
  EXPECT_EQ(exits[1].kind, RankExit::Kind::kExited);
}

TEST(RunInfo, RefusesWhatANewerVersionWroteAndWhatIsNoRun) {
  TemporaryFolder folder;
  const auto refusal = [&](const std::string& content) -> std::string {
    std::ofstream(folder.path() / "run.json") << content;
    try {
      load_run_info(folder.path());
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal(R"({"schema_version": 2})"), HasSubstr("update ddp-doctor"));
  EXPECT_THAT(refusal(R"({"schema_version": 1})"), HasSubstr("not a run of ddp-doctor"));
  EXPECT_THAT(refusal(R"({"schema_version": 1, "index": 1e30})"), HasSubstr("must be number"));
  EXPECT_THAT(refusal("{"), HasSubstr("not a run of ddp-doctor"));
}

}  // namespace
}  // namespace ddp_doctor
