// SPDX-License-Identifier: BSD-3-Clause
// Fields about collectives and missing ranks.
#include <fmt/format.h>

#include <algorithm>

#include "lib/explain/message_fields.h"
#include "lib/explain/message_window.h"
#include "lib/explain/wording/phrases.h"

namespace ddp_doctor {
namespace {

using std::string_view;

// A terminal may break a line anywhere, even in the middle of a word.
std::string without_blanks(string_view text) {
  std::string out(text);
  out.erase(std::remove(out.begin(), out.end(), ' '), out.end());
  return out;
}

// The value after `name`, up to the next "," or ")", or the end of a number.
std::string field(const std::string& text, string_view name) {
  const auto at = text.find(name);
  if (at == std::string::npos) return {};
  string_view value = string_view(text).substr(at + name.size());
  if (value.starts_with('[')) {
    const auto end = value.substr(0, 120).find(']');
    return end == string_view::npos ? std::string() : std::string(value.substr(0, end + 1));
  }
  const bool digits = !value.empty() && value.front() >= '0' && value.front() <= '9';
  return std::string(
      value.substr(0, std::min<std::size_t>(60, digits ? value.find_first_not_of("0123456789")
                                                       : value.find_first_of(",)."))));
}

// "[PG ID 0 PG GUID 0(default_pg) Rank 1]" and "[PG 0 (default_pg) Rank 7]", without the process
// group's number if it has a name; "[PG 3 Rank 4]".
std::string process_group_in(string_view before) {
  const auto begin = before.rfind("[PG ");
  if (begin == string_view::npos) return {};
  auto group = until(before.substr(begin + 4), " Rank ");
  if (const auto at = group.find("GUID "); at != string_view::npos) group.remove_prefix(at + 5);
  if (const auto name = between(group, "(", ")"); !name.empty()) group = name;
  return group.size() > 60 ? std::string() : std::string(group);
}

// "Rank 1] ... last enqueued NCCL work: 811, last completed NCCL work: 807", in each of its forms.
void read_progress(const LogStream& stream, string_view before, string_view after,
                   MessageFields& facts) {
  before = last_of(before, 250);
  RankFields& fields = facts.by(rank_of(stream, number_after(before, "Rank ")));
  const auto line = after.substr(0, 80);
  const auto completed = line.find("last completed");
  if (completed == string_view::npos) return;
  // -1: none yet.
  const auto value = [](string_view part) {
    const auto at = part.find("work: ");
    const auto number = at == string_view::npos ? string_view() : part.substr(at + 6);
    return std::string(number.substr(0, number.find_first_not_of("-0123456789")));
  };
  fields.note("last enqueued", value(line.substr(0, completed)));
  fields.note("last completed", value(line.substr(completed)));
  fields.note("process group", process_group_in(before));
}

// The innermost frame of a stack that is not a library's: "train.py:49".
std::string users_frame(string_view stack) {
  constexpr string_view kFrom = " from ";
  for (auto at = stack.find(kFrom); at != string_view::npos; at = stack.find(kFrom, at + 1)) {
    const auto frame = until(stack.substr(at + kFrom.size(), 300), " ");
    const auto colon = frame.find(".py:");
    if (colon == string_view::npos) continue;
    const bool library = frame.find("-packages/") != string_view::npos ||
                         frame.find("lib/python") != string_view::npos;
    if (!library) return std::string(frame);
  }
  return {};
}

}  // namespace

void read_fingerprints(const LogStream& stream, MessageFields& facts) {
  for (const string_view words :
       {" is running collective: ", " is running inconsistent collective: "}) {
    each_window(stream, words, [&](string_view before, string_view after) {
      const auto rank = number_after(last_of(before, 14), "ank ");
      if (!rank) return;
      RankFields& fields = facts.by(rank);
      if (!after.starts_with("CollectiveFingerPrint")) {
        fields.note("collective",
                    std::string(after.substr(0, after.substr(0, 40).find_first_of(".,( "))));
        return;
      }
      const auto print = without_blanks(until(after, "but Rank"));
      fields.note("collective", field(print, "OpType="));
      fields.note("shape", field(print, "TensorShape="));
      fields.note("number", field(print, "SequenceNumber="));
    });
  }
}

void read_sizes(const LogStream& stream, MessageFields& facts) {
  each_window(stream, phrases::kGlooSizes, [&](string_view, string_view after) {
    const auto came =
        number_in(after.substr(std::min(after.size(), after.find_first_of("0123456789"))));
    const auto vs = after.find(" vs ");
    if (!came || vs == string_view::npos || vs > 40) return;
    RankFields& fields = facts.by(stream.rank);
    fields.note("bytes received", std::to_string(*came));
    fields.note("bytes expected", std::to_string(number_in(after.substr(vs + 4)).value_or(0)));
  });
}

void read_barrier(const LogStream& stream, MessageFields& facts) {
  each_window(
      stream, " failed to pass monitoredBarrier", [&](string_view before, string_view after) {
        const auto at = before.rfind("Rank");
        if (at == string_view::npos) return;
        string_view list = before.substr(at + 4);
        while (!list.empty()) {
          const auto rank = small_number_in(list);
          if (rank) facts.suspects.insert(*rank);
          list.remove_prefix(rank ? std::min(list.size(), list.find_first_not_of("0123456789"))
                                  : 1);
        }
        facts.by(rank_of(stream, 0))
            .note("waited", std::string(between(after, " in ", "ms")) + "ms");
      });
}

void read_timeouts(const LogStream& stream, MessageFields& facts) {
  each_window(stream, "ollective operation timeout", [&](string_view before, string_view after) {
    const auto rank_in_text = number_after(last_of(before, 60), "[Rank ");
    RankFields& fields = facts.by(rank_of(stream, rank_in_text));
    const auto work = after.substr(0, 60).find("WorkNCCL(");
    if (work == string_view::npos) return;
    const auto print = without_blanks(until(after.substr(work, 300), " ran for "));
    fields.note("collective", field(print, "OpType="));
    fields.note("number", field(print, "SeqNum="));
    fields.note("shape", field(print, "TensorShape="));
    fields.note("elements", field(print, "NumelIn="));
    fields.note("timeout in ms", field(print, "Timeout(ms)="));
  });
  for (const string_view words : {"last enqueued ", "Last enqueued "}) {
    each_window(stream, words, [&](string_view before, string_view after) {
      read_progress(stream, before, after, facts);
    });
  }
  each_window(
      stream, "Received a dump signal due to a collective timeout from ",
      [&](string_view before, string_view after) {
        const auto rank_in_text = number_after(last_of(before, 60), "Rank ");
        if (const auto first = number_after(after.substr(0, 14), "rank "))
          facts.by(rank_of(stream, rank_in_text)).note("signalled by rank", std::to_string(*first));
      });
  // "#0 all_reduce from .../torch/distributed/distributed_c10d.py:2501 #1 train from train.py:49"
  constexpr string_view kStack = "Stack trace of the failed collective: ";
  const string_view text = stream.text;
  if (const auto at = text.find(kStack); at != string_view::npos)
    facts.by(stream.rank).note("called at", users_frame(text.substr(at + kStack.size(), 20'000)));
  each_window(stream, "Aborting process on rank ", [&](string_view, string_view after) {
    if (after.substr(0, 40).find("timeout") == string_view::npos) return;
    facts.by(rank_of(stream, small_number_in(after))).note("waited", "until its timeout");
  });
  each_window(stream, "Timed out waiting ", [&](string_view, string_view after) {
    const auto operation = between(after.substr(0, 60), "ms for ", " operation");
    if (!operation.empty())
      facts.by(stream.rank)
          .note("waited", fmt::format("{} ms in {}", number_in(after).value_or(0), operation));
  });
}

void read_peer(const LogStream& stream, MessageFields& facts) {
  each_window(stream, "onnection closed by peer [", [&](string_view, string_view after) {
    // Newer versions end the sentence here.
    auto peer = until(after.substr(0, 60), " ");
    if (peer.ends_with('.')) peer.remove_suffix(1);
    facts.by(stream.rank).note("peer", "[" + std::string(peer));
  });
}

void read_root_cause(const LogStream& stream, MessageFields& facts) {
  each_window(stream, "Root Cause (first observed failure)", [&](string_view, string_view after) {
    const auto at = after.find("rank : ");
    if (at == string_view::npos) return;
    const auto rank = small_number_in(after.substr(at + 7));
    if (!rank) return;
    facts.suspects.insert(*rank);
    RankFields& fields = facts.by(rank);
    fields.note("exit code", std::string(between(after, "exitcode : ", " ")));
    fields.note("signal", std::string(between(after, "Signal ", " received")));
  });
}

}  // namespace ddp_doctor
