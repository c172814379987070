// SPDX-License-Identifier: BSD-3-Clause
// CLI11 tells only which words it did not know, not where they were. So the command line is read
// once more, word by word, and sorted into what is ddp-doctor's, what is torchrun's, the program,
// and what is the program's own.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "tool/cli/misspelling.h"
#include "tool/cli/program_flags.h"
#include "tool/cli/usage_words.h"
#include "tool/system/interpreter.h"
#include "tool/system/shell_words.h"

namespace ddp_doctor {
namespace {

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

bool is_command(const std::string& word) {
  std::error_code unreadable;
  return !is_program(word) && !std::filesystem::is_directory(word, unreadable) &&
         !find_executable(word).empty();
}

Advice about(const Words& words, const std::string& text, const std::string& own = {}) {
  return {text + own, is_flag(words.front()) ? name_of_flag(words.front()) : "", own};
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

}  // namespace

std::optional<Advice> advice_about_program(const CLI::App& command, const Call& call) {
  return CommandLineWords(command, call).advice();
}

}  // namespace ddp_doctor
