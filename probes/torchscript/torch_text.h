// SPDX-License-Identifier: BSD-3-Clause
// LibTorch's messages, shortened for users.
#pragma once

#include <c10/util/Exception.h>
#include <torch/version.h>

#include <exception>
#include <string>

namespace ddp_doctor {

inline std::string torch_version() { return TORCH_VERSION; }

// Without the C++ frames that c10 appends.
inline std::string message_without_backtrace(const std::exception& error) {
  std::string text = error.what();
  if (const auto* c10_error = dynamic_cast<const c10::Error*>(&error))
    text = c10_error->what_without_backtrace();
  // Some backends append a trace to the text itself.
  text = text.substr(0, text.find("\nException raised from "));
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

// The last line: the error follows TorchScript's trace.
inline std::string raised_line(const std::exception& error) {
  const std::string text = message_without_backtrace(error);
  return text.starts_with("The following operation failed") ? text.substr(text.rfind('\n') + 1)
                                                            : text;
}

}  // namespace ddp_doctor
