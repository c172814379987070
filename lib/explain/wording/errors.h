// SPDX-License-Identifier: BSD-3-Clause
// What error texts say, in a record or in a pasted log: PyTorch's wording is the same from 1.13 to
// 2.15.
#pragma once

#include <optional>
#include <string>
#include <string_view>
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
std::vector<int> indices_in(std::string_view text);
// Those in its end, "R: 0 1".
std::vector<int> indices_listed(std::string_view text);

// The index in "Parameter at index 3 with name w has been marked as ready twice".
std::optional<int> index_marked_twice(std::string_view text);

// It is about the backward before the forward that raised it.
bool is_one_forward_late(std::string_view text);
// A backward under no_sync finished a reduction that static_graph had not prepared.
bool is_static_graph_under_no_sync(std::string_view text);
// A line of the traceback is torch.utils.checkpoint's.
bool went_through_checkpoint(std::string_view text);

// The program expects the environment that a launcher gives its ranks.
bool lacks_a_launcher(const std::string& text);
// The ranks' meeting point is taken by another process.
bool is_port_taken(std::string text);

}  // namespace ddp_doctor
