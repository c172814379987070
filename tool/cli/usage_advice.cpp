// SPDX-License-Identifier: BSD-3-Clause
// CLI11 tells only which words it did not know, not where they were. So the command line is read
// once more, word by word, and sorted into what is ddp-doctor's, what is torchrun's, the program,
// and what is the program's own.
#include "tool/cli/usage_advice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <utility>
#include <vector>

#include "lib/diagnose/rule.h"
#include "tool/cli/misspelling.h"
#include "tool/cli/program_flags.h"
#include "tool/system/interpreter.h"
#include "tool/system/shell_words.h"

namespace ddp_doctor {
namespace {

using Words = std::vector<std::string>;

struct LauncherFlag {
  const char* name;
  bool takes_value;
};
// With underscores: torch 1.13's torchrun knows no other.
constexpr LauncherFlag kLauncherFlags[] = {
    {"--nnodes", true},      {"--node_rank", true},        {"--standalone", false},
    {"--master_addr", true}, {"--max_restarts", true},     {"--rdzv_backend", true},
    {"--rdzv_id", true},     {"--rdzv_endpoint", true},    {"--rdzv_conf", true},
    {"--local_addr", true},  {"--monitor_interval", true}, {"--start_method", true},
};

// A flag and its value, or another word.
struct Piece {
  Words words;
  const CLI::Option* known = nullptr;      // a flag of ddp-doctor
  std::string meant;                       // of an unknown flag: the one that was probably meant
  const LauncherFlag* launcher = nullptr;  // a flag of torchrun
  bool after_program = false;
};

bool is_flag(const std::string& word) {
  return word.size() > 1 && word[0] == '-' &&
         std::isdigit(static_cast<unsigned char>(word[1])) == 0 && word[1] != '.';
}

std::string name_of_flag(const std::string& word) { return word.substr(0, word.find('=')); }

// "--node-rank=1" as torchrun of every torch knows it: "--node_rank=1".
std::string for_torchrun(std::string word) {
  const auto end = word.begin() + static_cast<std::ptrdiff_t>(name_of_flag(word).size());
  std::replace(word.begin() + 2, end, '-', '_');
  return word;
}

const LauncherFlag* launcher_flag(const std::string& word) {
  if (!word.starts_with("--")) return nullptr;
  const auto* flag = std::find_if(
      std::begin(kLauncherFlags), std::end(kLauncherFlags),
      [name = name_of_flag(for_torchrun(word))](const auto& each) { return name == each.name; });
  return flag == std::end(kLauncherFlags) ? nullptr : flag;
}

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

const CLI::Option* find_flag(const CLI::App& command, const std::string& name) {
  if (const auto* option = command.get_option_no_throw(name)) return option;
  if (name == "--config") return command.get_parent()->get_option_no_throw(name);
  if (name.starts_with("--") || name.size() < 3) return nullptr;
  for (const char letter : name.substr(1)) {  // -qv
    const auto* option = command.get_option_no_throw(std::string("-") + letter);
    if (option == nullptr || takes_value(*option)) return nullptr;
  }
  return command.get_option_no_throw(name.substr(0, 2));
}

bool is_program(const std::string& word) {
  const auto extension = std::filesystem::path(word).extension();
  return extension == ".py" || extension == ".pt";
}

// Or of one of its strategies: "script.pt@ddp".
bool is_script(const std::string& word) {
  return std::filesystem::path(word.substr(0, word.find('@'))).extension() == ".pt";
}

bool is_command(const std::string& word) {
  std::error_code unreadable;
  return !is_program(word) && !std::filesystem::is_directory(word, unreadable) &&
         !find_executable(word).empty();
}

struct Advice {
  std::string text;
  std::string option = {};  // the unknown one that it is about
  std::string own = {};     // the end of `text`: what to do if this is the program's own
};

constexpr char kUnexpected[] = "unexpected argument ";
constexpr char kNoArguments[] = ", and a TorchScript program takes no arguments; remove it";

Advice about(const Words& words, const std::string& text, const std::string& own = {}) {
  return {text + own, is_flag(words.front()) ? name_of_flag(words.front()) : "", own};
}

std::string unknown(const Words& words) {
  return is_flag(words.front()) ? "unknown option " + name_of_flag(words.front())
                                : kUnexpected + shell_line({words.front()});
}

std::string after_dashes(const std::string& line) {
  return "put the program's own arguments after --" + (line.empty() ? "" : ": " + line);
}

// A command line, taken apart.
class CommandLineWords {
 public:
  CommandLineWords(const CLI::App& command, const Call& call) : command_(command) {
    const bool names_command =
        call.words && std::none_of(call.args.begin(), call.args.end(),
                                   [](const auto& word) { return is_program(word); });
    read(call.args, names_command);
    if (program_.empty() && !unsure_.empty() && !names_command) {
      program_ = unsure_.front();
      unsure_.erase(unsure_.begin());
    }
    own_.insert(own_.begin(), unsure_.begin(), unsure_.end());
    if (call.words) {
      auto& target = names_command || command_without_dashes_ || module_ ? tail_ : own_;
      target.insert(target.end(), call.words->begin(), call.words->end());
    }
    given_words_ = call.words ? call.words->size() : 0;
    sort();
  }

  std::optional<Advice> advice() const {
    if (module_) return Advice{module_advice()};
    if (!launcher_.empty()) return Advice{launcher_advice()};
    if (wrong_) return about(wrong_->words, misspelling_advice());
    if (command_without_dashes_) return Advice{command_advice()};
    if (strategies_) {
      return Advice{fmt::format(
          "--strategies is only for TorchScript programs; to run a program in Python under other "
          "strategies: ddp-doctor compare {} @ddp-find-unused",
          shell_line({program_}))};
    }
    const std::size_t misplaced = own_.size() - (tail_.empty() ? given_words_ : 0);
    if (misplaced == 0) return {};
    const Words words(own_.begin(), own_.begin() + static_cast<std::ptrdiff_t>(misplaced));
    if (!tail_.empty()) {
      Words inside = tail_;
      inside.insert(inside.end(), own_.begin(), own_.end());
      return about(
          words, unknown(words) + "; ",
          "put the program's own arguments inside the command: " + line(ours_, {}, inside));
    }
    if (program_.empty()) return about(words, unknown(words));
    if (is_script(program_)) return about(words, unknown(words) + kNoArguments);
    const std::string own = after_dashes(line(ours_, program_, own_));
    if (foreign_)
      return Advice{name_of_flag(words.front()) + " is only for TorchScript programs; " + own};
    return about(words, unknown(words) + "; ", own);
  }

 private:
  void read(const Words& args, bool names_command) {
    for (std::size_t i = 0; i < args.size(); ++i) {
      const std::string& word = args[i];
      if (!is_flag(word)) {
        if (!program_.empty()) {
          pieces_.push_back({{word}});
        } else if (is_program(word)) {
          program_ = word;
        } else if (!names_command && is_command(word)) {
          tail_.assign(args.begin() + static_cast<std::ptrdiff_t>(i), args.end());
          command_without_dashes_ = true;
          return;
        } else {
          unsure_.push_back(word);
        }
        continue;
      }
      if (word == "-m" && program_.empty() && i + 1 < args.size()) {
        tail_.assign(args.begin() + static_cast<std::ptrdiff_t>(i) + 1, args.end());
        module_ = true;
        return;
      }
      Piece piece = piece_of(word);
      const bool next = i + 1 < args.size() && !is_flag(args[i + 1]);
      const bool valued =
          word.find('=') == std::string::npos && next && wants_value(piece, args[i + 1]);
      if (valued) piece.words.push_back(args[++i]);
      pieces_.push_back(std::move(piece));
    }
  }

  Piece piece_of(const std::string& word) const {
    Piece piece{{word}};
    const std::string name = name_of_flag(word);
    piece.known = find_flag(command_, name);
    if (piece.known != nullptr) return piece;
    piece.launcher = launcher_flag(word);
    if (piece.launcher != nullptr) return piece;
    const auto meant = meant_flags(command_, name);
    if (!meant.empty()) piece.meant = meant.front();
    piece.after_program = !program_.empty();
    return piece;
  }

  bool wants_value(const Piece& piece, const std::string& next) const {
    if (piece.known != nullptr) return takes_value(*piece.known);
    if (!piece.meant.empty()) return takes_value(*command_.get_option(piece.meant));
    if (piece.launcher != nullptr) return piece.launcher->takes_value;
    return !is_program(next);
  }

  // Now that the program is known.
  void sort() {
    const bool python = std::filesystem::path(program_).extension() == ".py";
    bool foreign = true;  // every misplaced word is a flag for TorchScript programs
    Words own;
    for (const auto& piece : pieces_) {
      const bool scripts = piece.known != nullptr && piece.known->get_group() == kOnlyScripts;
      if (scripts && python && piece.known->get_lnames().front() == "strategies") {
        strategies_ = true;
      } else if (piece.known != nullptr && !(scripts && python)) {
        ours_.push_back(piece);
      } else if (piece.launcher != nullptr) {
        launcher_.push_back(piece);
      } else {
        foreign = foreign && scripts;
        if (!piece.meant.empty() && !wrong_) wrong_ = piece;
        own.insert(own.end(), piece.words.begin(), piece.words.end());
      }
    }
    foreign_ = foreign && unsure_.empty() && !own.empty();
    own_.insert(own_.begin(), own.begin(), own.end());
  }

  // "ddp-doctor run --every 1 train.py -- --epochs 3"
  std::string line(const std::vector<Piece>& ours, const std::string& program,
                   const Words& after) const {
    Words words = {"ddp-doctor", command_.get_name()};
    for (const auto& piece : ours)
      words.insert(words.end(), piece.words.begin(), piece.words.end());
    if (!program.empty()) words.push_back(program);
    if (!after.empty()) words.emplace_back("--");
    words.insert(words.end(), after.begin(), after.end());
    return shell_line(words);
  }

  std::string module_advice() const {
    auto ours = ours_;
    if (std::none_of(ours.begin(), ours.end(), starts_ranks))
      ours.push_back({{"--nproc-per-node", "2"}});
    Words words = {"python", "-m"};
    words.insert(words.end(), tail_.begin(), tail_.end());
    return fmt::format("unknown option -m; run a module as a command, and say how many ranks: {}",
                       line(ours, {}, words));
  }

  std::string launcher_advice() const {
    std::vector<Piece> ours;
    Words torchrun = {"torchrun"};
    const auto give = [&](const Piece& piece) {
      torchrun.push_back(for_torchrun(piece.words.front()));
      torchrun.insert(torchrun.end(), piece.words.begin() + 1, piece.words.end());
    };
    for (const auto& piece : launcher_) give(piece);
    for (const auto& piece : ours_) {
      const std::string name = piece.known->get_lnames().front();
      if (name == "nproc-per-node" || name == "master-port") {
        give(piece);
      } else {
        ours.push_back(piece);
      }
    }
    const std::string what =
        name_of_flag(launcher_.front().words.front()) + " is a flag of torchrun; give it to ";
    if (program_.empty()) return what + "torchrun, after --";
    torchrun.push_back(program_);
    torchrun.insert(torchrun.end(), own_.begin(), own_.end());
    return what + "torchrun: " + line(ours, {}, torchrun);
  }

  std::string misspelling_advice() const {
    const std::string name = name_of_flag(wrong_->words.front());
    auto ours = ours_;
    Words meant = wrong_->words;
    meant.front().replace(0, name.size(), wrong_->meant);
    ours.push_back({meant});
    Words own = own_;
    const auto place =
        std::search(own.begin(), own.end(), wrong_->words.begin(), wrong_->words.end());
    own.erase(place, place + static_cast<std::ptrdiff_t>(wrong_->words.size()));
    if (!tail_.empty()) own.insert(own.begin(), tail_.begin(), tail_.end());
    std::string text = fmt::format("unknown option {}; did you mean {}?", name, wrong_->meant);
    if (program_.empty() && tail_.empty()) return text;
    text += " Try: " + line(ours, program_, own);
    if (wrong_->after_program && !is_script(program_)) {
      text += fmt::format("\nIf it belongs to {}, put it after --: {}", program_,
                          line(ours_, program_, own_));
    }
    return text;
  }

  std::string command_advice() const {
    const std::string& name = tail_.front();
    const std::string command = line(ours_, {}, tail_);
    if (std::filesystem::path(name).filename().string().starts_with("python") && tail_.size() > 1 &&
        is_program(tail_[1])) {
      return fmt::format(
          "{} is a command: ddp-doctor starts a program in Python itself, once for each rank: {}\n"
          "If it starts its ranks itself (torch.multiprocessing.spawn), put -- before the command: "
          "{}",
          name, line(ours_, tail_[1], Words(tail_.begin() + 2, tail_.end())), command);
    }
    return fmt::format("{} is a command: put -- before it: {}", name, command);
  }

  static bool starts_ranks(const Piece& piece) {
    return piece.known != nullptr && !piece.known->get_lnames().empty() &&
           piece.known->get_lnames().front() == "nproc-per-node";
  }

  const CLI::App& command_;
  std::vector<Piece> pieces_;
  Words unsure_;  // words before any that is a program by its name
  std::string program_;
  Words tail_;  // a command, or a module and its arguments
  std::vector<Piece> ours_, launcher_;
  Words own_;  // the program's own arguments; those that were given after "--" come last
  std::size_t given_words_ = 0;
  std::optional<Piece> wrong_;
  bool module_ = false, command_without_dashes_ = false, strategies_ = false, foreign_ = false;
};

// The line for a command that has the flag `args[at]`: with all words where it takes them.
std::string line_of(const CLI::App& other, const Call& call, std::size_t at) {
  Words all = {"ddp-doctor", other.get_name()}, alone = all;
  std::size_t programs = call.words ? 1 : 0;
  bool fits = true;
  for (std::size_t i = 0; i < call.args.size(); ++i) {
    const std::string& word = call.args[i];
    const bool valued = is_flag(word) && word.find('=') == std::string::npos &&
                        i + 1 < call.args.size() && !is_program(call.args[i + 1]);
    const auto* option = is_flag(word) ? find_flag(other, name_of_flag(word)) : nullptr;
    const std::size_t next = i + (option != nullptr && valued && takes_value(*option) ? 2 : 1);
    fits = fits && (option != nullptr || is_program(word));
    programs += is_flag(word) || call.words ? 0 : 1;
    const auto begin = call.args.begin();
    const Words piece(begin + static_cast<std::ptrdiff_t>(i),
                      begin + static_cast<std::ptrdiff_t>(next));
    all.insert(all.end(), piece.begin(), piece.end());
    if (i == at) alone.insert(alone.end(), piece.begin(), piece.end());
    i = next - 1;
  }
  Words& line = fits && programs < 2 ? all : alone;
  if (programs == 0 || &line == &alone) line.emplace_back("train.py");
  if (call.words && &line == &all) {
    line.emplace_back("--");
    line.insert(line.end(), call.words->begin(), call.words->end());
  }
  return shell_line(line);
}

// An unknown option may be one of another command that takes a program.
std::optional<std::string> with_other_commands(const CLI::App& command, const Call& call,
                                               const std::optional<Advice>& advice) {
  if (!advice) return {};
  const std::string& name = advice->option;
  const auto& args = call.args;
  const auto given = std::find_if(args.begin(), args.end(), [&](const std::string& word) {
    return name.starts_with("--") && name_of_flag(word) == name;
  });
  if (given == args.end() || find_flag(command, name) != nullptr) return advice->text;
  for (const auto* other : command.get_parent()->get_subcommands({})) {
    const auto* option = other->get_option_no_throw(name);
    if (option == nullptr || other->get_option_no_throw("program") == nullptr) continue;
    const bool value = given + 1 != args.end() && !is_flag(given[1]) && !is_program(given[1]);
    if (value && !takes_value(*option)) continue;  // "--model resnet" is the program's own
    std::string text =
        fmt::format("{} is an option of {}: {}", name, other->get_name(),
                    line_of(*other, call, static_cast<std::size_t>(given - args.begin())));
    if (!advice->own.empty() && std::any_of(args.begin(), given, is_program))
      text += "\nOr " + advice->own;
    return text;
  }
  return advice->text;
}

}  // namespace

std::optional<std::string> usage_advice(const CLI::App& command, const Call& call) {
  return with_other_commands(command, call, CommandLineWords(command, call).advice());
}

std::string explain_advice(Words words) {
  namespace fs = std::filesystem;
  if (words.size() > 1 && words.front() == "-") words.erase(words.begin());
  const auto is_log = [](const std::string& word) {
    const auto extension = fs::path(word).extension();
    std::error_code unreadable;
    return extension == ".log" || extension == ".txt" || extension == ".out" ||
           extension == ".err" || fs::is_regular_file(word, unreadable);
  };
  const std::string& first = words.front();
  if (words.size() == 1 && is_program(first))
    return fmt::format("{} is a program; to examine it: ddp-doctor run {}", first,
                       shell_line(words));
  if (words.size() == 1 && is_log(first))
    return fmt::format("{} is not a rule; to explain a log: ddp-doctor explain - < {}", first,
                       shell_line(words));
  if (std::all_of(words.begin(), words.end(), [](const auto& word) { return find_rule(word); }))
    return fmt::format("explain takes one rule: ddp-doctor explain {}", first);
  if (words.size() > 1 || first.find(' ') != std::string::npos)
    return fmt::format(
        "an error message is read from standard input: echo {} | ddp-doctor explain -",
        shell_line({fmt::format("{}", fmt::join(words, " "))}));
  const auto meant = did_you_mean_rule(first);
  return fmt::format(
      "{} is not a rule{}{} `ddp-doctor rules` lists them; `ddp-doctor explain -` reads an error "
      "text from standard input",
      first, meant, meant.ends_with('?') ? "" : ";");
}

namespace {

std::optional<Advice> advice_about_operands(const CLI::App& command, const Call& call) {
  const auto operands =
      command.get_options([](const CLI::Option* each) { return each->get_positional(); });
  const bool many = !operands.empty() && operands.front()->get_items_expected_max() > 1;
  const bool script = std::any_of(call.args.begin(), call.args.end(), is_script);
  const bool takes_words = !script && command.get_option_no_throw("--stop-after") != nullptr;
  const bool python = std::any_of(call.args.begin(), call.args.end(), [](const std::string& word) {
    return word.substr(0, word.find_first_of("@ ")).ends_with(".py");
  });
  Words ours = {"ddp-doctor", command.get_name()}, own, all;  // `all`: those that are no flags
  std::string problem, option;
  bool may_be_own = false, misspelled = false;
  std::size_t given = 0;
  for (std::size_t i = 0; i < call.args.size(); ++i) {
    const std::string& word = call.args[i];
    if (!is_flag(word)) {
      const bool operand = many || given < operands.size();
      all.push_back(word);
      if (!operand && problem.empty()) problem = unknown({word});
      (operand ? ours : own).push_back(word);
      given += operand ? 1 : 0;
      continue;
    }
    const std::string name = name_of_flag(word);
    const auto* known = find_flag(command, name);
    const bool foreign = known != nullptr && python && known->get_group() == kOnlyScripts;
    const auto meant = known != nullptr ? Words{} : meant_flags(command, name);
    auto& target = (known != nullptr && !foreign) || !meant.empty() ? ours : own;
    if (problem.empty() && !meant.empty()) {
      problem = fmt::format("{}; did you mean {}?", unknown({word}), meant.front());
      option = name;
      misspelled = true;
    } else if (problem.empty() && (foreign || known == nullptr)) {
      problem = foreign ? name + " is only for TorchScript programs" : unknown({word});
      may_be_own = takes_words;
      option = foreign ? "" : name;
    }
    target.push_back(meant.empty() ? word : meant.front() + word.substr(name.size()));
    const auto* option = meant.empty() ? known : command.get_option(meant.front());
    const bool next = i + 1 < call.args.size() && !is_flag(call.args[i + 1]) &&
                      word.find('=') == std::string::npos;
    if (next &&
        (option != nullptr ? takes_value(*option)
                           : !is_program(call.args[i + 1].substr(0, call.args[i + 1].find('@')))))
      target.push_back(call.args[++i]);
  }
  if (problem.empty()) return {};
  if (problem.starts_with(kUnexpected) && command.get_name() == "explain")
    return Advice{explain_advice(all)};
  if (problem.starts_with(kUnexpected) && operands.empty() && find_rule(all.front()) != nullptr)
    return Advice{fmt::format("{}; a rule's page: ddp-doctor explain {}", problem, all.front())};
  const bool complete = operands.empty() || !operands.front()->get_required() || given > 0;
  std::string line;  // what to type, if it is known
  if (complete && (own.empty() || takes_words)) {
    if (call.words) own.insert(own.end(), call.words->begin(), call.words->end());
    if (!own.empty()) ours.emplace_back("--");
    ours.insert(ours.end(), own.begin(), own.end());
    line = shell_line(ours);
  }
  if (script && !misspelled && !option.empty()) return Advice{problem + kNoArguments, option};
  if (may_be_own) return Advice{problem + "; " + after_dashes(line), option, after_dashes(line)};
  if (misspelled && !line.empty()) problem += " Try";
  return Advice{problem + (line.empty() ? "" : ": " + line), option};
}

}  // namespace

std::optional<std::string> operand_advice(const CLI::App& command, const Call& call) {
  return with_other_commands(command, call, advice_about_operands(command, call));
}

void refuse_script_flags(const CLI::App& command, const Call& call) {
  if (!was_any_given(command, kOnlyScripts)) return;
  if (const auto advice = operand_advice(command, call))
    throw CLI::ExtrasError(*advice, CLI::ExitCodes::ExtrasError);
}

}  // namespace ddp_doctor
