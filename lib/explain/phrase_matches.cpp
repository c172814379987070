// SPDX-License-Identifier: BSD-3-Clause
#include "lib/explain/phrase_matches.h"

#include <algorithm>
#include <iterator>

#include "lib/explain/phrase_index.h"

namespace ddp_doctor {
namespace {

using std::string_view;

// The text around a match, which may belong to the same message.
string_view around(string_view text, std::size_t at, std::size_t before, std::size_t after) {
  const auto begin = at - std::min(at, before);
  return text.substr(begin, at - begin + after);
}

bool contains(string_view text, string_view words) { return text.find(words) != string_view::npos; }

constexpr string_view kTorchWords[] = {"gloo",
                                       "NCCL",
                                       "nccl",
                                       "c10d",
                                       "TCPStore",
                                       "ProcessGroup",
                                       "DistNetworkError",
                                       "DistStoreError",
                                       "DistBackendError"};

// Words of a log that is about a context: matched anywhere in it.
struct ContextWords {
  Context context;
  string_view words;
};
constexpr ContextWords kContextWords[] = {
    {Context::kDistributed, "torch.distributed"},
    {Context::kDistributed, "torch/distributed/"},
    {Context::kDistributed, "torchrun"},
    {Context::kDistributed, "LOCAL_RANK"},
    {Context::kDistributed, "local_rank"},
    {Context::kDistributed, "init_process_group"},
    {Context::kDistributed, "DistributedDataParallel"},
    {Context::kDistributed, "multiprocessing/spawn.py"},
    {Context::kDistributed, "deepspeed"},
    {Context::kDistributed, "DeepSpeed"},
    {Context::kSharded, "fsdp"},
    {Context::kSharded, "FSDP"},
    {Context::kSharded, "FullyShardedDataParallel"},
    {Context::kSharded, "fully_shard"},
    {Context::kSharded, "deepspeed"},
    {Context::kSharded, "DeepSpeed"},
    {Context::kSharded, "zero3"},
    {Context::kSharded, "DTensor"},
    {Context::kTensorParallel, "parallelize_module"},
    {Context::kTensorParallel, "DTensor"},
    {Context::kTensorParallel, "distributed/tensor/"},
    {Context::kTensorParallel, "tensor_parallel"},
    {Context::kMegatron, "egatron"},
};

// Everything that is looked for in a log: the phrases of all known texts, and the words of
// contexts.
struct Wanted {
  struct Place {
    const KnownText* text;
    const Phrase* phrase;
  };
  std::vector<const KnownText*> texts = known_texts();
  std::vector<Place> phrases;
  PhraseIndex index;

  Wanted() {
    for (const auto* known : texts) {
      for (const auto& phrase : known->phrases) {
        index.add(phrase.words, phrases.size());
        phrases.push_back({known, &phrase});
      }
    }
    for (std::size_t i = 0; i < std::size(kContextWords); ++i)
      index.add(kContextWords[i].words, phrases.size() + i);
  }
};

const Wanted& wanted() {
  static const Wanted all;
  return all;
}

}  // namespace

Matches matches_in(const PastedLog& log) {
  Matches matches;
  for (const auto& stream : log.streams) {
    if (stream.rank) matches.contexts.insert(Context::kDistributed);
    auto& found = matches.of.emplace_back();
    wanted().index.each_place(stream.text, [&](std::size_t number, std::size_t at) {
      const auto& phrases = wanted().phrases;
      if (number >= phrases.size()) {
        matches.contexts.insert(kContextWords[number - phrases.size()].context);
      } else {
        found.push_back({phrases[number].text, phrases[number].phrase, at});
      }
    });
  }
  return matches;
}

bool counts(const Match& match, string_view text, const std::set<Context>& contexts) {
  const KnownText& known = *match.text;
  const auto at = match.at;
  if (!known.not_before.empty() && contains(around(text, at, 0, 250), known.not_before))
    return false;
  const auto before = around(text, at, 250, 0);
  for (const auto words : known.not_after) {
    if (contains(before, words)) return false;
  }
  switch (match.phrase->context) {
    case Context::kAnywhere:
      return true;
    case Context::kNearTorchWords: {
      const auto nearby = around(text, at, 300, 300);
      return std::any_of(std::begin(kTorchWords), std::end(kTorchWords),
                         [&](string_view words) { return contains(nearby, words); });
    }
    default:
      return contexts.contains(match.phrase->context);
  }
}

}  // namespace ddp_doctor
