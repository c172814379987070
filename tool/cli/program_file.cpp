// SPDX-License-Identifier: BSD-3-Clause
#include "tool/cli/program_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include "lib/error.h"
#include "tool/cli/misspelling.h"

namespace ddp_doctor {
namespace {

// "; did you mean src/train.py?" of the programs beside it, or nothing.
std::string similar_to(const std::filesystem::path& file) {
  namespace fs = std::filesystem;
  const fs::path folder = file.parent_path();
  std::vector<std::string> programs;
  std::error_code unreadable;
  for (fs::directory_iterator entry(folder.empty() ? "." : folder, unreadable), end;
       !unreadable && entry != end; entry.increment(unreadable)) {
    const auto extension = entry->path().extension();
    if (extension == ".py" || extension == ".pt")
      programs.push_back(entry->path().filename().string());
  }
  auto meant = meant_by(file.filename().string(), programs);
  for (auto& name : meant) name = (folder / name).string();
  return meant.empty() ? std::string()
                       : fmt::format("; did you mean {}?", fmt::join(meant, " or "));
}

constexpr char kHowToSave[] = "save the program with torch.jit.script(model).save(\"program.pt\")";

}  // namespace

ProgramKind kind_of_program(const std::filesystem::path& file) {
  namespace fs = std::filesystem;
  const std::string name = file.string();
  std::error_code failure;
  const auto status = fs::status(file, failure);
  if (!fs::exists(status)) {
    const auto meant = similar_to(file);
    throw Error(
        fmt::format("{}: no such file{}", name, meant.empty() ? "; check the path" : meant));
  }
  if (fs::is_directory(status))
    throw Error(fmt::format("{}: is a directory; name the program (train.py or script.pt)", name));
  std::ifstream in(file, std::ios::binary);
  if (!in) throw Error(fmt::format("{}: cannot be read; check its permissions", name));
  std::string head(512, '\0');
  in.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<std::size_t>(in.gcount()));

  if (file.extension() == ".py") return ProgramKind::kPython;
  if (head.empty()) throw Error(fmt::format("{}: the file is empty; {}", name, kHowToSave));
  if (head.starts_with("PK\x03\x04")) return ProgramKind::kTorchScript;
  if (head.starts_with("#!") || head.starts_with("\x7f"
                                                 "ELF")) {
    throw Error(
        fmt::format("{0}: is an executable; put it after --: "
                    "ddp-doctor run -- {1}{0}",
                    name, name.find('/') == std::string::npos ? "./" : ""));
  }
  if (head[0] == '\x80')
    throw Error(
        fmt::format("{}: a Python pickle, not a TorchScript program; {}", name, kHowToSave));
  throw Error(fmt::format(
      "{}: neither a Python program (*.py) nor a TorchScript program (it does not begin like a "
      "zip archive); {}",
      name, kHowToSave));
}

}  // namespace ddp_doctor
