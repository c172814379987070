// SPDX-License-Identifier: BSD-3-Clause
// The messages of PyTorch that can be explained: their wording by version, and what they mean. Data
// only; explanation.cpp finds them in a log.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "lib/diagnose/rule.h"
#include "lib/explain/message_fields.h"

namespace ddp_doctor {

struct Explanation;

// The order in a report: closer to the cause comes first.
enum class Depth { kCause, kCollective, kConsequence, kWarning };

// Where a phrase counts, if other programs print it too.
enum class Context {
  kAnywhere,
  kNearTorchWords,  // words of torch.distributed are in the same message or beside it
  // The log mentions, anywhere:
  kDistributed,     // torch.distributed, a launcher, or a rank
  kSharded,         // FSDP, ZeRO or DTensor
  kTensorParallel,  // DTensor or tensor parallelism
  kMegatron,
};

struct Phrase {
  std::string_view words;  // four letters or more
  Context context = Context::kAnywhere;
};

// A variable part of a message. It begins after `after`, which is looked for from the phrase on; if
// `after` is empty it is the last word before the phrase. It ends before `until`; if that is empty,
// with the word.
struct MessageField {
  std::string_view figure;  // kParameterName: one of the names
  std::string_view after;
  std::string_view until = "";
};
inline constexpr std::string_view kParameterName = "parameter";
inline constexpr std::string_view kEndOfLine = "\n";  // for `until`

// Words that only some versions use, or that reveal more about the case.
struct Hint {
  std::string_view words;
  std::string_view means;
};

struct NextStep {
  std::string_view command;
  std::string_view why;
};

struct KnownText {
  std::string_view id;  // public: part of the JSON output
  Severity severity = Severity::kError;
  Certainty certainty = Certainty::kLikely;  // kCertain: the text alone decides the rule
  Depth depth = Depth::kCause;
  std::vector<const Rule*> rules = {};           // most likely first; empty if it has no rule
  std::vector<Phrase> phrases;                   // any of them
  std::string_view not_before = "";              // ignored if these follow in the same message
  std::vector<std::string_view> not_after = {};  // ignored if one of these comes before it
  std::vector<std::string_view> part_of = {};    // omitted if one of these was found
  std::vector<Hint> versions = {};               // of torch; the first whose words are found
  std::vector<Hint> hints = {};
  std::string_view says;
  std::vector<std::string_view> means = {};
  std::vector<std::string_view> causes = {};
  std::vector<NextStep> commands = {};  // to run before ddp-doctor
  std::string_view run = "";            // what `ddp-doctor run` adds; empty: it would fail alike
  std::vector<MessageField> fields = {};
  Reader read = read_nothing;  // what `fields` cannot say
  void (*weigh)(Explanation& explanation) =
      nullptr;  // interprets the fields of several ranks together
};

// In no particular order.
using KnownTexts = std::span<const KnownText* const>;
KnownTexts reducer_texts();        // errors in a forward or a backward
KnownTexts collective_texts();     // errors in collectives
KnownTexts constructor_texts();    // errors before any training
KnownTexts warning_texts();        // warnings; training continues
KnownTexts nccl_texts();           // NCCL's own errors
KnownTexts watchdog_texts();       // communicators that time out or hang
KnownTexts process_group_texts();  // backends, and the store
KnownTexts launch_texts();         // torchrun, mp.spawn, init_process_group
KnownTexts fsdp_texts();           // FullyShardedDataParallel
KnownTexts fully_shard_texts();    // FSDP2
KnownTexts dtensor_texts();        // DTensor, DeviceMesh, tensor parallelism
KnownTexts pipelining_texts();     // torch.distributed.pipelining
KnownTexts checkpoint_texts();     // torch.distributed.checkpoint
KnownTexts deepspeed_texts();
KnownTexts megatron_texts();
std::vector<const KnownText*> known_texts();  // all of these

// A rank's own error, not one of PyTorch's: the reason why others lost it or waited for it.
const KnownText& own_error_text();

// Interpret the fields of several ranks together (weighing.cpp).
void weigh_unused(Explanation& explanation);
void weigh_counts(Explanation& explanation);
void weigh_fingerprints(Explanation& explanation);
void weigh_timeouts(Explanation& explanation);
void weigh_suspects(Explanation& explanation);

}  // namespace ddp_doctor
