// SPDX-License-Identifier: BSD-3-Clause
// Stands in for Gloo's header of this name. PyTorch's wheels contain Gloo, but not its headers;
// ProcessGroupGloo.hpp includes five of them for types that it only points to. Our code never makes
// an object of these types, so names and virtual functions to override are all that is needed. On
// the include path only where the real ones are missing.
#pragma once

#include <gloo/context.h>
