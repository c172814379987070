// SPDX-License-Identifier: BSD-3-Clause
// A worker that waits for requests of tool/launch/prepared_ranks.h and forks a rank for each.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace ddp_doctor {

// Returns in each forked process, with the rank's command line; its environment and its output are
// set, and `title`, the memory of this process's own command line, shows what ps is to show. In the
// process that waits it never returns: it ends when `socket` is closed.
std::vector<std::string> forked_rank(int socket, std::span<char> title);

}  // namespace ddp_doctor
