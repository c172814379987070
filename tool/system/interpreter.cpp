// SPDX-License-Identifier: BSD-3-Clause
#include "tool/system/interpreter.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "lib/error.h"
#include "lib/log.h"
#include "tool/system/capture.h"
#include "tool/system/paths.h"
#include "tool/system/shell_words.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;

constexpr auto kDeadline = std::chrono::seconds(10);

// Prints the version of Python and, if there is a torch, its own. Importing torch takes seconds, so
// its version file is read. The working folder is not searched: `python train.py` does not, either.
constexpr char kQuestion[] = R"py(
import sys
sys.path = [entry for entry in sys.path if entry]
from importlib.util import find_spec
print("%d.%d.%d" % sys.version_info[:3])
spec = find_spec("torch")
if spec is not None and spec.origin:
    import os, re
    try:
        with open(os.path.join(os.path.dirname(spec.origin), "version.py")) as file:
            found = re.search(r"__version__\s*=\s*['\"]([^'\"]+)", file.read())
    except OSError:
        found = None
    print(found.group(1) if found else "of unknown version")
)py";

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

Interpreter examined(std::string found_as, const fs::path& path) {
  Interpreter interpreter{std::move(found_as), path, "", "", ""};
  const Answer answer = ask({path.string(), "-c", kQuestion}, kDeadline);
  std::istringstream lines(answer.out);
  std::getline(lines, interpreter.python);
  std::getline(lines, interpreter.torch);
  if (answer.late) {
    interpreter.why_not = fmt::format("did not respond within {} s", kDeadline.count());
  } else if (answer.status != 0) {
    const std::string words = last_line(answer.err);
    interpreter.why_not = "failed" + (words.empty() ? "" : ": " + words);
  } else if (interpreter.python.empty()) {
    interpreter.why_not = "is not a Python interpreter";
  } else if (interpreter.torch.empty()) {
    interpreter.why_not = fmt::format("Python {} has no torch", interpreter.python);
  }
  return interpreter;
}

Interpreter missing(std::string found_as, const std::string& why) {
  return {std::move(found_as), {}, "", "", why};
}

}  // namespace

fs::path find_executable(const std::string& name) {
  const auto usable = [](const fs::path& file) {
    std::error_code ignored;
    return fs::is_regular_file(file, ignored) && access(file.c_str(), X_OK) == 0;
  };
  if (name.find('/') != std::string::npos) return usable(name) ? fs::path(name) : fs::path();
  const char* path = std::getenv("PATH");
  for (const auto& folder : split(path != nullptr ? path : "/usr/bin:/bin", ':')) {
    const fs::path file = fs::path(folder.empty() ? "." : folder) / name;
    if (usable(file)) return file;
  }
  return {};
}

std::vector<Interpreter> interpreters(const std::string& given) {
  if (!given.empty()) {
    const char* setting = std::getenv(kPythonSetting);
    const bool set = setting != nullptr && given == setting;
    const std::string found_as =
        set ? fmt::format("{}={}", kPythonSetting, given) : "--python " + given;
    const fs::path path = find_executable(given);
    if (path.empty()) return {missing(found_as, "is missing or not executable")};
    return {examined(found_as, path)};
  }
  std::vector<Interpreter> found;
  std::vector<fs::path> seen;
  const auto add = [&](std::string found_as, const fs::path& path) {
    if (std::find(seen.begin(), seen.end(), path) != seen.end()) return;
    seen.push_back(path);
    found.push_back(examined(std::move(found_as), path));
  };
  if (const char* venv = std::getenv("VIRTUAL_ENV"); venv != nullptr && *venv != '\0') {
    const fs::path path = fs::path(venv) / "bin/python";
    if (find_executable(path.string()).empty()) {
      found.push_back(
          missing(fmt::format("$VIRTUAL_ENV ({})", path.string()), "is missing or not executable"));
    } else {
      add("$VIRTUAL_ENV", path);
    }
  }
  // Where pip installed ddp-doctor into an environment that is not activated.
  if (fs::exists(installation() / "pyvenv.cfg"))
    add("beside ddp-doctor", installation() / "bin/python");
  if (const auto path = find_executable("python3"); !path.empty()) {
    add("python3 on PATH", path);
  } else {
    found.push_back(missing("python3 on PATH", "not found"));
  }
  if (const fs::path path = "/usr/bin/python3"; !find_executable(path.string()).empty())
    add("the system's", path);
  return found;
}

Interpreter choose_interpreter(const std::string& given) {
  const auto found = interpreters(given);
  for (const auto& interpreter : found) {
    if (interpreter.why_not.empty()) {
      const auto& preferred = found.front();
      if (!preferred.why_not.empty() && preferred.found_as.starts_with("$VIRTUAL_ENV"))
        log::warn(
            "the active environment, {}: {}; the program runs with {} (torch {}). --python chooses "
            "another",
            std::getenv("VIRTUAL_ENV"), preferred.why_not, interpreter.path.string(),
            interpreter.torch);
      log::info("Python: {} ({}), {}, torch {}", interpreter.path.string(), interpreter.found_as,
                interpreter.python, interpreter.torch);
      return interpreter;
    }
    log::info("Python: not {} ({}): {}", interpreter.path.string(), interpreter.found_as,
              interpreter.why_not);
  }
  if (!given.empty()) {
    throw Error(fmt::format("{}: {}; give a Python that has torch, or omit it",
                            found.front().found_as, found.front().why_not));
  }
  std::string tried;
  for (const auto& interpreter : found) {
    tried += fmt::format("\n  {}{}: {}", interpreter.found_as,
                         interpreter.path.empty() ? "" : " (" + interpreter.path.string() + ")",
                         interpreter.why_not);
  }
  throw Error(
      fmt::format("no Python with torch was found:{}\nGive the one that runs your program with "
                  "--python PATH, or activate its environment",
                  tried));
}

}  // namespace ddp_doctor
