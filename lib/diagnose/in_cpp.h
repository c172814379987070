// SPDX-License-Identifier: BSD-3-Clause
// Rules speak of PyTorch as programs in Python write it; this is how programs in C++ do.
#pragma once

#include <string>

namespace ddp_doctor {

// `text` of a message or prescription, with LibTorch's names, and those of docs/cpp.md's wrapper.
std::string in_cpp(std::string text);

}  // namespace ddp_doctor
