// SPDX-License-Identifier: BSD-3-Clause
// make_examples DIR [NAME...]: writes the example programs, all or the named ones, as DIR/NAME.pt.
#include <torch/script.h>

#include <algorithm>
#include <array>
#include <exception>
#include <filesystem>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "examples/program_builder.h"
#include "examples/programs.h"
#include "lib/error.h"

namespace ddp_doctor::examples {

std::span<const Example> all_examples() {
  static constexpr std::array kExamples = {
      Example{"orphan", orphan},
      Example{"curriculum", curriculum},
      Example{"conditional", conditional},
      Example{"multi_forward", multi_forward},
      Example{"cnn", cnn},
      Example{"gpt", gpt},
      Example{"tied", tied},
      Example{"multi_output", multi_output},
      Example{"step_dependent", step_dependent},
      Example{"detached", detached},
      Example{"token_mean", token_mean},
      Example{"training_step", training_step},
      Example{"rank_crash", rank_crash},
      Example{"frozen_backbone", frozen_backbone},
  };
  return kExamples;
}

namespace {

std::vector<Example> chosen_examples(const std::vector<std::string_view>& names) {
  const auto all = all_examples();
  if (names.empty()) return {all.begin(), all.end()};
  std::vector<Example> chosen;
  for (const auto name : names) {
    const auto found = std::find_if(all.begin(), all.end(),
                                    [&](const Example& example) { return example.name == name; });
    if (found == all.end()) {
      std::string known;
      for (const Example& example : all) known.append(" ").append(example.name);
      throw Error("no example is named '" + std::string(name) + "'; choose from:" + known);
    }
    chosen.push_back(*found);
  }
  return chosen;
}

void write_examples(const std::filesystem::path& folder,
                    const std::vector<std::string_view>& names) {
  const auto chosen = chosen_examples(names);
  std::filesystem::create_directories(folder);
  for (const Example& example : chosen) {
    save_program(example.build(), folder / (std::string(example.name) + ".pt"));
  }
}

}  // namespace
}  // namespace ddp_doctor::examples

int main(int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') {
    std::cerr << "usage: make_examples DIR [NAME...]\n";
    return 2;
  }
  try {
    ddp_doctor::examples::write_examples(argv[1], {argv + 2, argv + argc});
  } catch (const c10::Error& error) {
    std::cerr << "make_examples: " << error.what_without_backtrace() << '\n';
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "make_examples: " << error.what() << '\n';
    return 2;
  }
  return 0;
}
