// SPDX-License-Identifier: BSD-3-Clause
// A free TCP port for the ranks' store.
#pragma once

namespace ddp_doctor {

// Free at this moment, on every address, and outside the range that the kernel uses for outgoing
// connections, so that it is unlikely to be taken before the ranks start. Throws Error if there is
// none.
int free_port();

}  // namespace ddp_doctor
