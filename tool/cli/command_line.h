// SPDX-License-Identifier: BSD-3-Clause
// The command line as data, for --help, the manual page and the shells' completions.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace ddp_doctor {

// What can be completed where a value is expected: words, files or folders, or nothing.
struct Values {
  std::vector<std::string> words;
  bool files = false;
  bool folders = false;

  bool known() const { return files || folders || !words.empty(); }
};

struct Flag {
  std::vector<std::string> names;  // "-q", "--quiet"; of an operand none
  std::string takes;               // "FILE"; of a switch empty
  std::string limits;              // of what it takes: "1 to 1024"; often empty
  std::string help;                // may have several lines
  std::string fallback;            // may be empty
  std::string variable;            // in the environment; may be empty
  std::string group;               // the heading under which --help has it
  bool repeatable = false;
  bool required = false;
  Values values;
};

struct CommandLine {
  std::string name;
  std::string summary;
  std::vector<Flag> flags;
  std::vector<Flag> operands;
  std::vector<CommandLine> commands;  // of ddp-doctor itself
  std::string footer;
};

Flag described(const CLI::Option& option);

// Of `app` and of those of its commands that --help shows.
CommandLine described(const CLI::App& app);

// The first words of a help text, for one line of a menu.
std::string in_brief(const std::string& help);

}  // namespace ddp_doctor
