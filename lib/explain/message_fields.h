// SPDX-License-Identifier: BSD-3-Clause
// The variable parts of PyTorch's messages, by rank: parameters, shapes, sequence numbers,
// collectives. There is one reader for each form of message. None throws, and none keeps more than
// a short window of a message.
#pragma once

#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lib/explain/pasted_log.h"

namespace ddp_doctor {

struct RankFields {
  std::optional<int> rank;         // nothing if neither a label nor the text has it
  std::vector<int> indices;        // in DistributedDataParallel's order of trainable parameters
  std::vector<std::string> names;  // in no particular order
  bool cut = false;                // the list ended in "..."
  // Of the pasted text, where this rank first reports it.
  std::size_t line = std::numeric_limits<std::size_t>::max();
  std::vector<std::pair<std::string, std::string>> figures;  // "collective", "ALLREDUCE"

  const std::string* figure(const std::string& what) const;
  void note(const std::string& what, std::string value);  // keeps the first value of each
};

struct MessageFields {
  RankFields& by(std::optional<int> rank);

  std::map<int, RankFields> ranks;  // -1: unknown
  std::set<int> suspects;           // ranks that others waited for, or that failed first
};

// Each reads all messages of its form in one stream.
using Reader = void (*)(const LogStream& stream, MessageFields& facts);

// What a table of fields says, at each of the places where a phrase begins.
struct MessageField;
void read_fields(std::span<const MessageField> fields, const LogStream& stream,
                 std::span<const std::size_t> places, MessageFields& facts);

void read_nothing(const LogStream& stream, MessageFields& facts);
// "Parameter indices which did not receive grad for rank 0: 4 5", "Parameters which did ...:
// c.bias",
// "[Rank 0] Parameter: c.bias did not get gradient in backwards pass."
void read_unused(const LogStream& stream, MessageFields& facts);
// "Parameter c.bias at index 5 is marked as unused."
void read_marked_unused(const LogStream& stream, MessageFields& facts);
// "Parameter at index 5 with name c.bias has been marked as ready twice."
void read_ready_twice(const LogStream& stream, MessageFields& facts);
// "Rank 1 has 3 params, while rank 0 has inconsistent 4 params."
void read_counts(const LogStream& stream, MessageFields& facts);
// "[1]: params[0] in this process with sizes [5, 4] appears not to match sizes ..."
void read_shapes(const LogStream& stream, MessageFields& facts);
// "[torch.FloatTensor [4]] is at version 4; expected version 3 instead."
void read_version(const LogStream& stream, MessageFields& facts);
// "Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=7, OpType=ALLREDUCE, ..."
void read_fingerprints(const LogStream& stream, MessageFields& facts);
// "op.preamble.length <= op.nbytes. 40004 vs 4"
void read_sizes(const LogStream& stream, MessageFields& facts);
// "[Rank 0]: Rank 1 failed to pass monitoredBarrier in 3000 ms"
void read_barrier(const LogStream& stream, MessageFields& facts);
// "WorkNCCL(SeqNum=808, OpType=ALLREDUCE, ...) ran for 600020 milliseconds", "last enqueued NCCL
// work: 811, last completed NCCL work: 807", "Timed out waiting 6000ms for recv operation"
void read_timeouts(const LogStream& stream, MessageFields& facts);
// "Connection closed by peer [127.0.0.1]:7563"
void read_peer(const LogStream& stream, MessageFields& facts);
// "Root Cause (first observed failure): [0]: ... rank : 1 (local_rank: 1) exitcode : -9 (pid: 7)"
void read_root_cause(const LogStream& stream, MessageFields& facts);

}  // namespace ddp_doctor
