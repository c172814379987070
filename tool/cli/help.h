// SPDX-License-Identifier: BSD-3-Clause
// --help in lines of at most 100 columns.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>

namespace ddp_doctor {

// Without the environment variables, which the footer explains once.
std::shared_ptr<CLI::FormatterBase> wrapped_help();

}  // namespace ddp_doctor
