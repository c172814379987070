// SPDX-License-Identifier: BSD-3-Clause
// A TCP port where ranks can meet.
#pragma once

namespace ddp_doctor {

// Free at this moment, on every address, and out of the range from which the kernel serves outgoing
// connections, so that hardly anyone takes it before the ranks do. Throws Error if there is none.
int free_port();

}  // namespace ddp_doctor
