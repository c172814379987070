// SPDX-License-Identifier: BSD-3-Clause
// Stands in for Gloo's header of this name; see gloo/algorithm.h here.
#pragma once
