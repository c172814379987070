// SPDX-License-Identifier: BSD-3-Clause
// Classifies error texts: PyTorch's wording is the same from 1.13 to 2.15.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ddp_doctor {

// "unfinished-reduction", "static-graph", "marked-twice": raised by the reducer;
// "stuck-collective": a timeout; "mismatched-collective": ranks issued different ones; "peer-lost":
// another rank ended first; "exception": anything else.
// Of chained exceptions the root's, unless the reducer raised one of them.
std::string error_kind(const std::string& text);

// The part that states what happened, as one line: TorchScript and Python put it last, after the
// trace. Of chained exceptions the root's, and what it became.
std::string telling_line(const std::string& text);

// The indices in "Parameter indices which did not receive grad for rank R: 0 1", as the reducer
// counts parameters.
std::vector<int> indices_in(const std::string& text);

// The index in "Parameter at index 3 with name w has been marked as ready twice".
std::optional<int> index_marked_twice(const std::string& text);

}  // namespace ddp_doctor
