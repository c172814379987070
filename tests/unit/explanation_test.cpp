// SPDX-License-Identifier: BSD-3-Clause
// `ddp-doctor explain -`: what PyTorch's texts are taken for, in the wording of each era. Where a
// text is not quoted from a report, it was printed by torch 1.13 or 2.15.

#include "lib/explain/explanation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "lib/explain/known_texts.h"
#include "lib/explain/wording/errors.h"

namespace ddp_doctor {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kUnfinished =
    "RuntimeError: Expected to have finished reduction in the prior iteration before starting a "
    "new one. This error indicates that your module has parameters that were not used in producing "
    "loss. ";
const std::string kDefault =
    kUnfinished +
    "You can enable unused parameter detection by passing the keyword argument "
    "`find_unused_parameters=True` to `torch.nn.parallel.DistributedDataParallel`, and by \n"
    "making sure all `forward` function outputs participate in calculating loss. \n";
const std::string kStaticFewer =
    "RuntimeError: Expected to have finished reduction in the prior iteration before starting a "
    "new one. This error indicates that your training graph has changed in this iteration, e.g., "
    "one parameter is used in first iteration, but then got unused in the second iteration. this "
    "is not compatible with static_graph set to True.\n";
const std::string kTwice =
    "RuntimeError: Expected to mark a variable ready only once. This error is caused by ";

std::string indices(int rank, const std::string& list) {
  return "Parameter indices which did not receive grad for rank " + std::to_string(rank) + ": " +
         list + "\n In addition, you can set the environment variable TORCH_DISTRIBUTED_DEBUG\n";
}

std::string fingerprint(int rank, const std::string& number, const std::string& what) {
  return "Rank " + std::to_string(rank) + " is running collective: CollectiveFingerPrint(" +
         number + what +
         ", TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float (default)))";
}

// The only explanation of `text`.
Explanation only(const std::string& text) {
  const auto log = explain_log(text);
  EXPECT_EQ(log.explanations.size(), 1u) << text;
  return log.explanations.empty() ? Explanation() : log.explanations.front();
}

std::vector<std::string> texts_in(const std::string& text) {
  std::vector<std::string> ids;
  for (const auto& explanation : explain_log(text).explanations) ids.push_back(explanation.text);
  return ids;
}

std::string first_seen(const Explanation& explanation) {
  return explanation.seen.empty() ? "" : explanation.seen.front();
}

TEST(Explanation, UnusedParametersWithoutDebug) {
  const auto e = only(kDefault + indices(0, "4 5 6"));
  EXPECT_EQ(e.text, "unfinished-reduction");
  EXPECT_THAT(e.rules, ElementsAre("DDP201", "DDP202"));
  EXPECT_EQ(e.certainty, Certainty::kLikely);
  EXPECT_EQ(e.torch, "1.9 and later");
  ASSERT_EQ(e.fields.size(), 1u);
  EXPECT_EQ(e.fields[0].rank, 0);
  EXPECT_THAT(e.fields[0].indices, ElementsAre(4, 5, 6));
  EXPECT_THAT(first_seen(e), HasSubstr("Only rank 0's list"));
  EXPECT_EQ(e.next.front().command, "ddp-doctor run train.py");
  EXPECT_EQ(e.next.back().command, "ddp-doctor explain DDP202");
}

TEST(Explanation, UnusedParametersWithDebugInfoOrDetail) {
  const auto e =
      only(kDefault + "Parameters which did not receive grad for rank 1: c.bias, c.weight\n" +
           "Parameter indices which did not receive grad for rank 1: 4 5\n1 loss 0.5\n");
  ASSERT_EQ(e.fields.size(), 1u);
  EXPECT_EQ(e.fields[0].rank, 1);
  EXPECT_THAT(e.fields[0].indices, ElementsAre(4, 5));
  EXPECT_THAT(e.fields[0].names, ElementsAre("c.bias", "c.weight"));
  // What TORCH_CPP_LOG_LEVEL=INFO adds.
  const auto noted = only(
      "[I reducer.cpp:1] [Rank 1] Parameter: c.bias did not get gradient in backwards pass.\n" +
      kDefault + indices(1, "5"));
  EXPECT_EQ(noted.text, "unfinished-reduction");
  EXPECT_THAT(noted.fields[0].names, ElementsAre("c.bias"));
  EXPECT_THAT(only("[Rank 0]: Parameter c.bias at index 5 is marked as unused.").rules,
              ElementsAre("DDP201", "DDP203"));
}

TEST(Explanation, UnusedParametersOfOldVersions) {
  const auto e =
      only(kUnfinished +
           "You can enable unused parameter detection by (1) passing the keyword argument "
           "`find_unused_parameters=True` to `torch.nn.parallel.DistributedDataParallel`; "
           "(2) making sure all `forward` function outputs participate in calculating loss.");
  EXPECT_EQ(e.torch, "1.2 to 1.8");
  EXPECT_THAT(e.seen, Contains(HasSubstr("no list of parameters")));
  EXPECT_EQ(only("Expected to have finished reduction in the prior iteration").torch, "");
}

TEST(Explanation, UnusedParametersAlthoughTheyWereLookedFor) {
  const auto e = only(kUnfinished +
                      "Since `find_unused_parameters=True` is enabled, this likely  means that not "
                      "all `forward` outputs participate in computing loss.\n" +
                      indices(0, "0"));
  EXPECT_THAT(first_seen(e), HasSubstr("Since torch 1.10"));
}

TEST(Explanation, RanksThatListDifferentParameters) {
  const auto e = only(kDefault + indices(0, "4 5") + kDefault + indices(1, "2 3"));
  EXPECT_THAT(e.rules, ElementsAre("DDP202", "DDP201"));
  EXPECT_THAT(e.ranks(), ElementsAre(0, 1));
  EXPECT_THAT(first_seen(e), HasSubstr("list different parameters"));
  EXPECT_THAT(e.causes.front(), HasSubstr("DDP202"));
  const auto same = only(kDefault + indices(0, "4 5") + kDefault + indices(1, "4 5"));
  EXPECT_THAT(same.rules, ElementsAre("DDP201", "DDP202"));
  EXPECT_THAT(first_seen(same), HasSubstr("Ranks 0 and 1 list the same"));
}

TEST(Explanation, ListsThatWereCutOrBroken) {
  const auto cut = only(kDefault + indices(0, "4 5 6 ..."));
  EXPECT_TRUE(cut.fields[0].cut);
  EXPECT_THAT(cut.fields[0].indices, ElementsAre(4, 5, 6));
  const auto broken =
      only(kDefault +
           "Parameter indices which did not receive grad for rank 0: 8 9\n10 11 12\n"
           "3 2 1 go\n");
  EXPECT_THAT(broken.fields[0].indices, ElementsAre(8, 9, 10, 11, 12));
  // Only its end was pasted.
  EXPECT_EQ(only(indices(3, "7")).text, "unused-list");
}

TEST(Explanation, StaticGraphInBothDirections) {
  const auto fewer = only(kStaticFewer + indices(0, "4 5"));
  EXPECT_EQ(fewer.text, "static-graph-fewer");
  EXPECT_THAT(fewer.rules, ElementsAre("DDP206"));
  EXPECT_EQ(fewer.certainty, Certainty::kLikely);  // it has several possible causes
  EXPECT_THAT(fewer.fields[0].indices, ElementsAre(4, 5));
  EXPECT_EQ(only(kStaticFewer).torch, "1.9 and later");
  EXPECT_THAT(only(kStaticFewer + indices(0, "4") + kStaticFewer + indices(1, "5")).rules,
              ElementsAre("DDP206", "DDP202"));
  const auto more = only(
      "RuntimeError: Your training graph has changed in this iteration, e.g., one parameter is "
      "unused in first iteration, but then got used in the second iteration. this is not "
      "compatible with static_graph set to True.");
  EXPECT_EQ(more.text, "static-graph-more");
  EXPECT_THAT(more.rules, ElementsAre("DDP206"));
  const auto check = only(
      "RuntimeError: expect_autograd_hooks_ INTERNAL ASSERT FAILED at "
      "\"./torch/csrc/distributed/c10d/reducer.cpp\":1490, please report a bug to PyTorch. ");
  EXPECT_THAT(check.rules, ElementsAre("DDP206"));
  EXPECT_THAT(check.causes.front(), HasSubstr("no_sync"));
}

TEST(Explanation, MarkedReadyTwiceInThreeEras) {
  const auto oldest = only(kTwice + "use of a module parameter outside the `forward` function.");
  EXPECT_EQ(oldest.torch, "1.1 and 1.2");
  EXPECT_THAT(oldest.rules, ElementsAre("DDP205"));
  const auto older = only(kTwice +
                          "one of the following reasons: 1) Use of a module parameter outside the "
                          "`forward` function. ... DDP does not support such use cases yet.");
  EXPECT_EQ(older.torch, "1.3 to 1.8");
  const std::string newer =
      kTwice + "one of the following reasons: 1) ... or try to use _set_static_graph() ...\n";
  const auto unnamed = only(newer + "Parameter at index 159 has been marked as ready twice.");
  EXPECT_EQ(unnamed.torch, "1.9 and later");
  EXPECT_THAT(unnamed.fields[0].indices, ElementsAre(159));
  const auto named = only("  File \"torch/utils/checkpoint.py\", line 157, in backward\n" + newer +
                          "Parameter at index 1 with name f.bias has been marked as ready twice.");
  EXPECT_THAT(named.fields[0].names, ElementsAre("f.bias"));
  EXPECT_THAT(first_seen(named), HasSubstr("checkpoint.py"));
}

TEST(Explanation, UnusedParametersInLightningsWords) {
  const auto e = only(
      "RuntimeError: It looks like your LightningModule has parameters that were not used in "
      "producing the loss returned by training_step. If this is intentional, you must enable the "
      "detection of unused parameters in DDP, either by setting the string value "
      "`strategy='ddp_find_unused_parameters_true'` or by setting the flag in the strategy with "
      "`strategy=DDPStrategy(find_unused_parameters=True)`.");
  EXPECT_EQ(e.text, "unfinished-reduction");
  EXPECT_EQ(e.rules.front(), "DDP201");
  EXPECT_EQ(e.certainty, Certainty::kLikely);
  EXPECT_THAT(first_seen(e), HasSubstr("Lightning"));
}

TEST(Explanation, IsCertainOnlyOfASingleCause) {
  for (const char* text : {"Expected to mark a variable ready only once.",
                           "Your training graph has changed in this iteration"}) {
    const auto e = only(text);
    EXPECT_GT(e.causes.size(), 1u);
    EXPECT_EQ(e.certainty, Certainty::kLikely) << text;
  }
}

TEST(Explanation, ModelsThatDiffer) {
  const auto count = only(
      "RuntimeError: DDP expects same model across all ranks, but Rank 1 has 3 params, while rank "
      "0 has inconsistent 4 params.");
  EXPECT_THAT(count.rules, ElementsAre("DDP306"));
  EXPECT_EQ(count.certainty, Certainty::kLikely);
  ASSERT_EQ(count.fields.size(), 2u);
  EXPECT_EQ(*count.fields[0].figure("trainable parameters"), "4");
  EXPECT_EQ(*count.fields[1].figure("trainable parameters"), "3");
  // Most reports of it are not about the model at all.
  const auto zero = only(
      "DDP expects same model across all ranks, but Rank 0 has 382 params, while rank 1 has "
      "inconsistent 0 params.");
  EXPECT_EQ(zero.certainty, Certainty::kLikely);
  EXPECT_THAT(first_seen(zero), HasSubstr("Check the launch"));
}

TEST(Explanation, ShapesThatDifferInThreeEras) {
  const std::string end =
      "] in this process with sizes [5, 4] appears not to match sizes of the "
      "same param in process 0.";
  const auto newer = only("RuntimeError: [1]: params[7" + end);
  EXPECT_THAT(newer.rules, ElementsAre("DDP306"));
  EXPECT_EQ(newer.fields[0].rank, 1);
  EXPECT_THAT(newer.fields[0].indices, ElementsAre(7));
  EXPECT_EQ(*newer.fields[0].figure("sizes"), "[5, 4]");
  const auto older = only("RuntimeError: params[7" + end);
  EXPECT_EQ(older.fields[0].rank, std::nullopt);
  EXPECT_THAT(older.fields[0].indices, ElementsAre(7));
  const auto oldest = only("RuntimeError: replicas[0][7" + end);
  EXPECT_THAT(oldest.torch, HasSubstr("earlier"));
  EXPECT_THAT(oldest.fields[0].indices, ElementsAre(7));
}

TEST(Explanation, CollectivesThatDifferInFourEras) {
  const std::string begin = "RuntimeError: Detected mismatch between collectives on ranks. ";
  const auto oldest = only(begin +
                           "Rank 0 is running inconsistent collective: CollectiveFingerPrint("
                           "OpType=BROADCAST, TensorShape=[34112], TensorDtypes=Float");
  EXPECT_THAT(oldest.torch, HasSubstr("1.9 to 1.12"));
  EXPECT_THAT(oldest.ranks(), ElementsAre(0));
  const auto older = only(
      begin + fingerprint(26, "SequenceNumber=683057617, ", "OpType=BROADCAST, TensorShape=[1]") +
      ", but Rank 1 is running collective: CollectiveFingerPrint("
      "SequenceNumber=513876813OpType=BROADCAST).");
  EXPECT_THAT(older.ranks(), ElementsAre(1, 26));
  EXPECT_EQ(*older.fields[0].figure("number"), "513876813");
  EXPECT_THAT(older.seen, Contains(HasSubstr("Rank 1 issued fewer calls")));
  const auto shapes =
      only(begin + fingerprint(1, "", "OpType=ALLREDUCE, TensorShape=[195812480]") + ", but " +
           fingerprint(0, "", "OpType=ALLREDUCE, TensorShape=[51123456]"));
  EXPECT_THAT(shapes.rules[0], "DDP502");
  EXPECT_THAT(shapes.rules[1], "DDP202");
  EXPECT_EQ(*shapes.fields[0].figure("shape"), "[51123456]");
  const auto newest =
      only(begin + fingerprint(0, "SequenceNumber=0, ", "OpType=ALLREDUCE, TensorShape=[4]") +
           ", but " + fingerprint(1, "SequenceNumber=0, ", "OpType=BROADCAST, TensorShape=[4]") +
           ".Collectives differ in the following aspects:   Op type: ALLREDUCEvs BROADCAST");
  EXPECT_THAT(newest.torch, HasSubstr("2.1"));
  EXPECT_THAT(newest.rules[1], "DDP505");
  EXPECT_THAT(first_seen(newest), HasSubstr("(ALLREDUCE and BROADCAST)"));
}

TEST(Explanation, GlooSizes) {
  const std::string text =
      "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n"
      "  what():  [enforce fail at ./gloo/transport/tcp/pair.cc:510] op.preamble.length <= "
      "op.nbytes. 40004 vs 4";
  const auto e = only(text);
  EXPECT_EQ(e.rules.front(), "DDP502");
  EXPECT_EQ(*e.fields[0].figure("bytes received"), "40004");
  EXPECT_EQ(*e.fields[0].figure("bytes expected"), "4");
  EXPECT_THAT(only(text + ". Received data size doesn't match expected size.").torch,
              HasSubstr("2.9 and later"));
}

std::string watchdog(int rank, const std::string& work) {
  const auto number = std::to_string(rank);
  return "[rank" + number + "]:[E626 06:24:44.903881913 ProcessGroupNCCL.cpp:616] [Rank " + number +
         "] Watchdog caught collective operation timeout: WorkNCCL(" + work +
         "Timeout(ms)=600000) ran for 600020 milliseconds before timing out.\n";
}

TEST(Explanation, WatchdogInThreeEras) {
  const auto oldest = only(
      "[E ProcessGroupNCCL.cpp:587] [Rank 1] Watchdog caught collective operation "
      "timeout: WorkNCCL(OpType=ALLREDUCE, TensorShape=[1], Timeout(ms)=1800000) "
      "ran for 1803184 milliseconds before timing out.");
  EXPECT_THAT(oldest.torch, HasSubstr("earlier"));
  EXPECT_THAT(oldest.ranks(), ElementsAre(1));
  EXPECT_EQ(*oldest.fields[0].figure("shape"), "[1]");
  const auto older = only(watchdog(0, "SeqNum=469508, OpType=ALLREDUCE, "));
  EXPECT_THAT(older.torch, HasSubstr("1.12 and later"));
  const auto newest =
      only(watchdog(2, "SeqNum=808, OpType=ALLREDUCE, NumelIn=9801523, NumelOut=9801523, "));
  EXPECT_EQ(newest.rules.front(), "DDP501");
  EXPECT_EQ(*newest.fields[0].figure("number"), "808");
  EXPECT_EQ(*newest.fields[0].figure("collective"), "ALLREDUCE");
  EXPECT_EQ(*newest.fields[0].figure("elements"), "9801523");
  EXPECT_EQ(*newest.fields[0].figure("timeout in ms"), "600000");
}

TEST(Explanation, WatchdogsThatPointToARank) {
  const std::string work = "SeqNum=808, OpType=ALLREDUCE, NumelIn=98, NumelOut=98, ";
  const auto missing = only(watchdog(0, work) + watchdog(1, work) + watchdog(3, work));
  EXPECT_THAT(missing.suspects, ElementsAre(2));
  EXPECT_THAT(missing.seen, Contains("Look at rank 2 first."));
  const auto apart =
      only(watchdog(0, work) + watchdog(1, "SeqNum=808, OpType=BROADCAST, NumelIn=1, "));
  EXPECT_EQ(apart.rules.front(), "DDP502");
  const std::string last =
      "] Exception detected by watchdog at work: 808, last enqueued NCCL work: ";
  const auto behind = only(watchdog(0, work) + "[rank0]: [PG ID 0 PG GUID 0(default_pg) Rank 0" +
                           last + "811, last completed NCCL work: 807.\n" + watchdog(1, work) +
                           "[rank1]: [PG ID 0 PG GUID 0(default_pg) Rank 1" + last +
                           "808, last completed NCCL work: 807.\n");
  EXPECT_THAT(behind.suspects, ElementsAre(1));
  EXPECT_THAT(only(watchdog(0, work) + watchdog(1, work)).suspects, IsEmpty());
}

TEST(Explanation, TimeoutsOfGloo) {
  const auto e = only(
      "RuntimeError: [./gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting "
      "1800000ms for recv operation to complete");
  EXPECT_EQ(e.text, "collective-timeout");
  EXPECT_EQ(*e.fields[0].figure("waited"), "1800000 ms in recv");
  const auto barrier = only(
      "RuntimeError: [Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 3000 ms\n"
      " Original exception: \n[./gloo/transport/tcp/unbound_buffer.cc:81] Timed "
      "out waiting 2999ms for recv operation to complete");
  EXPECT_EQ(barrier.text, "monitored-barrier");
  EXPECT_THAT(barrier.suspects, ElementsAre(1, 3));
}

TEST(Explanation, LostPeersComeAfterWhatTheyFollowFrom) {
  const std::string lost =
      "[rank0]: RuntimeError: [/gloo/transport/tcp/pair.cc:561] Connection closed by peer "
      "[127.0.0.1]:7563. This is typically caused by a remote worker crashing.\n";
  const auto alone = only(lost);
  EXPECT_EQ(alone.rules.front(), "DDP504");
  EXPECT_EQ(*alone.fields[0].figure("peer"), "[127.0.0.1]:7563");
  EXPECT_THAT(first_seen(alone), HasSubstr("the other ranks' output is needed"));
  EXPECT_THAT(texts_in(lost + "[rank1]: " + kTwice), ElementsAre("ready-twice", "peer-lost"));
  const auto own = explain_log(lost + "[rank1]: ValueError: bad sample 17\n");
  ASSERT_EQ(own.explanations.size(), 2u);
  EXPECT_EQ(own.explanations[0].text, "own-error");
  EXPECT_THAT(own.explanations[0].ranks(), ElementsAre(1));
  EXPECT_EQ(*own.explanations[0].fields[0].figure("error"), "ValueError: bad sample 17");
  EXPECT_THAT(first_seen(own.explanations[1]), HasSubstr("DDP504"));
  EXPECT_THAT(texts_in("NCCL error: remote process exited or there was a network error\n"
                       "ncclRemoteError: A call failed possibly due to a network error"),
              ElementsAre("peer-lost"));
}

TEST(Explanation, TorchrunsSummary) {
  const auto e = only(
      "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
      "Root Cause (first observed failure):\n[0]:\n  time      : 2025-05-21_15:43:03\n"
      "  rank      : 3 (local_rank: 3)\n  exitcode  : -9 (pid: 14750)\n  error_file: <N/A>\n"
      "  traceback : Signal 9 (SIGKILL) received by PID 14750\n");
  EXPECT_THAT(e.suspects, ElementsAre(3));
  EXPECT_EQ(*e.fields[0].figure("exit code"), "-9");
  EXPECT_THAT(first_seen(e), HasSubstr("out-of-memory"));
}

TEST(Explanation, WarningsAndOthers) {
  EXPECT_THAT(only("Warning: find_unused_parameters=True was specified in DDP constructor, but did "
                   "not find any unused parameters in the forward pass.")
                  .rules,
              ElementsAre("DDP204"));
  EXPECT_THAT(only("Warning: Grad strides do not match bucket view strides.").means.front(),
              HasSubstr("Harmless"));
  EXPECT_THAT(
      only("Using DistributedDataParallel with create_graph=True  is not well-supported.").rules,
      Contains("DDP109"));
  const auto in_place = only(
      "RuntimeError: one of the variables needed for gradient computation has been modified by an "
      "inplace operation: [torch.FloatTensor [4]] is at version 4; expected version 3 instead.");
  EXPECT_EQ(*in_place.fields[0].figure("tensor"), "torch.FloatTensor [4]");
  EXPECT_THAT(in_place.causes.front(), HasSubstr("broadcast_buffers=False"));
  EXPECT_EQ(
      only("RuntimeError: DistributedDataParallel is not needed when a module doesn't have any "
           "parameter that requires a gradient.")
          .text,
      "nothing-to-train");
  EXPECT_EQ(
      only("torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients. "
           "1/2 clients joined.")
          .text,
      "start-timeout");
}

// Their prose names rules by code.
TEST(Explanation, NamesOnlyRulesThatThereAre) {
  static const std::regex code("DDP[0-9]{3}");
  std::size_t named = 0;
  for (const auto* text : known_texts()) {
    std::string prose{text->says};
    for (const auto& hint : text->hints) prose += hint.means;
    for (const auto* list : {&text->means, &text->causes}) {
      for (const auto line : *list) prose += line;
    }
    for (std::sregex_iterator at(prose.begin(), prose.end(), code), end; at != end; ++at, ++named)
      EXPECT_NE(find_rule(at->str()), nullptr) << at->str() << " in " << text->id;
  }
  EXPECT_GT(named, 20u);
}

// The records' own reading of errors and this one must not part.
TEST(Explanation, AgreesWithTheKindsThatRulesUse) {
  EXPECT_EQ(error_kind(kDefault), "unfinished-reduction");
  EXPECT_EQ(error_kind(kStaticFewer), "static-graph");
  EXPECT_EQ(error_kind(kTwice), "marked-twice");
  EXPECT_THAT(indices_in(kDefault + indices(0, "4 5 6 ...")), ElementsAre(4, 5, 6));
  EXPECT_THAT(indices_in(kDefault), IsEmpty());
}

}  // namespace
}  // namespace ddp_doctor
