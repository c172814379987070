// SPDX-License-Identifier: BSD-3-Clause
// A process's connections to other machines, as /proc shows them.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

namespace ddp_doctor {

// The address ("10.0.0.2:34567") of a peer that has not acknowledged data that was sent to it more
// than once; nothing if there is none.
std::optional<std::string> silent_peer(pid_t pid);

}  // namespace ddp_doctor
