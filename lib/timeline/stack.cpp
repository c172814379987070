// SPDX-License-Identifier: BSD-3-Clause
#include "lib/timeline/stack.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>

namespace ddp_doctor {
namespace {

constexpr std::size_t kMaxText = 1 << 20;

// `  File "train.py", line 12 in main`
std::optional<Frame> frame_of(std::string_view line) {
  constexpr std::string_view kFile = "  File \"";
  constexpr std::string_view kLine = "\", line ";
  if (!line.starts_with(kFile)) return {};
  line.remove_prefix(kFile.size());
  const auto end = line.find(kLine);
  if (end == std::string_view::npos) return {};
  Frame frame;
  frame.file = line.substr(0, end);
  line.remove_prefix(end + kLine.size());
  const auto [rest, error] = std::from_chars(line.data(), line.data() + line.size(), frame.line);
  if (error != std::errc()) return {};
  line.remove_prefix(static_cast<std::size_t>(rest - line.data()));
  if (line.starts_with(" in ")) frame.function = line.substr(4);
  return frame;
}

std::string beginning_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::string text(kMaxText, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text;
}

}  // namespace

bool Frame::of_the_user() const {
  return !file.starts_with("<") && file.find("/site-packages/") == std::string::npos &&
         file.find("/dist-packages/") == std::string::npos &&
         file.find("/lib/python3") == std::string::npos &&
         file.find("/ddp_doctor_probe/") == std::string::npos;
}

std::vector<Frame> main_thread(std::string_view text) {
  std::vector<std::vector<Frame>> threads;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    if (line.find("hread 0x") != std::string::npos) threads.emplace_back();
    if (auto frame = frame_of(line); frame && !threads.empty())
      threads.back().push_back(std::move(*frame));
  }
  // The main thread; faulthandler writes it last.
  const auto main = std::find_if(threads.rbegin(), threads.rend(), [](const auto& frames) {
    return !frames.empty() && frames.back().function == "<module>";
  });
  if (main != threads.rend()) return *main;
  return threads.empty() ? std::vector<Frame>{} : threads.back();
}

std::vector<Frame> read_stack(const std::filesystem::path& file) {
  return main_thread(beginning_of(file));
}

std::vector<std::string> native_functions(std::string_view text) {
  std::vector<std::string> functions;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream in(line);
    std::string number, word;
    if (!line.starts_with("#") || !(in >> number >> word)) continue;
    if (number == "#0" && !functions.empty()) break;  // the next thread's
    // "0x00007f76 name", "0x00007f76 in name (...) at file", "name (...) at file"
    if (word.starts_with("0x") && !(in >> word)) continue;
    if (word == "in" && !(in >> word)) continue;
    std::string rest;
    std::getline(in, rest);
    std::string name = word + rest;
    if (const auto arguments = name.find(" ("); arguments != std::string::npos)
      name.resize(arguments);
    functions.push_back(std::move(name));
  }
  return functions;
}

std::vector<std::string> read_native_stack(const std::filesystem::path& file) {
  return native_functions(beginning_of(file));
}

}  // namespace ddp_doctor
