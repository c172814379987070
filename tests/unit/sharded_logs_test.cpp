// SPDX-License-Identifier: BSD-3-Clause
// Logs of sharded training, of several ranks: what they show together, and the fields of messages.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/explain/explanation.h"

namespace ddp_doctor {
namespace {

using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

Explanation first(const std::string& text) {
  const auto log = explain_log(text);
  return log.explanations.empty() ? Explanation() : log.explanations.front();
}

std::string figure(const Explanation& explanation, const std::string& what) {
  for (const auto& fields : explanation.fields) {
    if (const auto* value = fields.figure(what)) return *value;
  }
  return "";
}

std::string label(int rank) {
  return "[rank" + std::to_string(rank) + "]:[E816 01:45:40.183009389 ProcessGroupNCCL.cpp:1] ";
}

std::string timeout(int rank, const std::string& work) {
  return label(rank) + "[Rank " + std::to_string(rank) +
         "] Watchdog caught collective operation timeout: WorkNCCL(" + work +
         ", Timeout(ms)=600000) ran for 600026 milliseconds before timing out.\n";
}

std::string progress(int rank, const std::string& group, int work, int enqueued, int completed) {
  return label(rank) + "[" + group + " Rank " + std::to_string(rank) +
         "] Exception (either an error or timeout) detected by watchdog at work: " +
         std::to_string(work) + ", last enqueued NCCL work: " + std::to_string(enqueued) +
         ", last completed NCCL work: " + std::to_string(completed) + ".\n";
}

const std::string kDefault = "PG ID 0 PG GUID 0(default_pg)";

// As in NVIDIA/nccl#1409.
TEST(ShardedLogs, ARankInAnotherCollective) {
  const auto e =
      first(timeout(0, "SeqNum=80078, OpType=BROADCAST, NumelIn=5056, NumelOut=5056") +
            timeout(1, "SeqNum=80078, OpType=ALLREDUCE, NumelIn=2106881, NumelOut=2106881") +
            timeout(2, "SeqNum=80078, OpType=ALLREDUCE, NumelIn=2106881, NumelOut=2106881"));
  EXPECT_EQ(e.rules.front(), "DDP502");
  EXPECT_THAT(e.suspects, ElementsAre(0));
  EXPECT_THAT(e.seen, Contains("Rank 0 is elsewhere in the program than the others."));
  EXPECT_THAT(e.seen,
              Contains("Ranks 1 and 2 waited 600 s in ALLREDUCE number 80078 (2106881 elements)."));
}

TEST(ShardedLogs, ARankThatNeverIssuedTheCall) {
  const std::string work = "SeqNum=812, OpType=_ALLGATHER_BASE, NumelIn=19008, NumelOut=152064";
  const auto e =
      first(timeout(0, work) + progress(0, kDefault, 812, 812, 811) + timeout(2, work) +
            progress(2, kDefault, 812, 812, 811) + label(1) + "[" + kDefault +
            " Rank 1] Received a dump signal due to a collective timeout from  rank 2 and "
            "we will try our best to dump the debug info. Last enqueued NCCL work: 811, "
            "last completed NCCL work: 811.\n");
  EXPECT_THAT(e.suspects, ElementsAre(1));
  EXPECT_THAT(e.seen, Contains(HasSubstr("Rank 1 never issued number 812, in which others wait")));
  EXPECT_THAT(e.seen, Contains(HasSubstr("Rank 2 timed out first")));
  EXPECT_THAT(e.seen, Contains(HasSubstr("FSDP and ZeRO-3 gather")));
}

// As in hiyouga/LlamaFactory#7396: all ranks of the job wait in the same call.
TEST(ShardedLogs, NobodyIsMissing) {
  const std::string work = "SeqNum=1580, OpType=ALLREDUCE, NumelIn=466119168, NumelOut=466119168";
  std::string log;
  for (int rank = 0; rank < 8; ++rank)
    log += timeout(rank, work) + progress(rank, "PG 1", 1580, 1582, 1579);
  const auto e = first(log);
  EXPECT_THAT(e.suspects, IsEmpty());
  EXPECT_THAT(e.seen, Contains(HasSubstr("none is missing")));
}

// Sequence numbers of different process groups say nothing about each other.
TEST(ShardedLogs, DoesNotCompareProcessGroups) {
  const auto e = first(timeout(0, "SeqNum=44, OpType=ALLREDUCE, NumelIn=9, NumelOut=9") +
                       progress(0, "PG ID 1 PG GUID 3(TENSOR)", 44, 44, 43) +
                       timeout(5, "SeqNum=7, OpType=_ALLGATHER_BASE, NumelIn=9, NumelOut=9") +
                       progress(5, "PG ID 2 PG GUID 9(DATA)", 7, 7, 6));
  EXPECT_THAT(e.suspects, IsEmpty());
  EXPECT_THAT(e.seen, Contains(HasSubstr("Ranks wait in 2 process groups")));
  EXPECT_THAT(e.seen, Each(Not(HasSubstr("different collectives"))));
}

// A rank that is not in the group has nothing to report.
TEST(ShardedLogs, DoesNotMissRanksOfOtherGroups) {
  const std::string work = "SeqNum=44, OpType=ALLREDUCE, NumelIn=9, NumelOut=9";
  const auto e = first(timeout(0, work) + progress(0, "PG ID 1 PG GUID 3", 44, 45, 43) +
                       timeout(2, work) + progress(2, "PG ID 1 PG GUID 3", 44, 45, 43));
  EXPECT_THAT(e.suspects, IsEmpty());
  EXPECT_THAT(e.seen, Contains(HasSubstr("if they belong to process group 3")));
}

TEST(ShardedLogs, TimeoutsOfTheNewerBackend) {
  const auto e = first(
      "[rank0]: Aborting process on rank 0 due to timeout - timeout watchdog detected operation "
      "timeout\n[rank2]: Aborting process on rank 2 due to timeout - timeout watchdog detected "
      "operation timeout\n");
  EXPECT_THAT(e.suspects, ElementsAre(1));
  EXPECT_THAT(e.torch, HasSubstr("2.15"));
}

TEST(ShardedLogs, WhereTheCollectiveWasCalled) {
  const auto e = first(timeout(2, "SeqNum=1, OpType=ALLGATHER, NumelIn=1, NumelOut=4") +
                       "[rank2]: Stack trace of the failed collective: \n"
                       "[rank2]: #0 _verify_param_shape_across_processes from "
                       "/opt/venv/lib/python3.13/site-packages/torch/distributed/utils.py:286\n"
                       "[rank2]: #1 main from /workspace/experiments/scripts/train.py:692\n");
  EXPECT_EQ(figure(e, "called at"), "/workspace/experiments/scripts/train.py:692");
}

TEST(ShardedLogs, WhoRaisedAndWhoLostAPeer) {
  const auto log = explain_log(
      "[rank0]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3384, "
      "remote "
      "process exited or there was a network error, NCCL version 2.21.5\n"
      "[rank1]: RuntimeError: aten.mm.default: got mixed torch.Tensor and DTensor, need to "
      "convert\n"
      "[rank2]: [W TCPStore.cpp:106] [c10d] recvValue failed on SocketImpl(fd=5): failed to recv, "
      "got "
      "0 bytes\n");
  ASSERT_EQ(log.explanations.size(), 3u);
  EXPECT_EQ(log.explanations[0].text, "dtensor-mixed");
  EXPECT_THAT(log.explanations[0].seen,
              Contains("Rank 1 raised it; ranks 0 and 2 only waited for that, or lost the "
                       "connection."));
  for (const std::size_t i : {1, 2}) {
    EXPECT_THAT(log.explanations[i].seen, Contains(HasSubstr("a consequence of the first error")));
    EXPECT_THAT(log.explanations[i].causes, IsEmpty());
  }
}

TEST(ShardedLogs, TheFirstOfSeveral) {
  const auto e = first(
      "[rank2]: ValueError: bad sample 17\n[rank0]: KeyError: 'loss'\n"
      "[rank1]: RuntimeError: [/gloo/transport/tcp/pair.cc:561] Connection closed by peer "
      "[127.0.0.1]:7563\n");
  EXPECT_THAT(e.ranks(), ElementsAre(0, 2));
  EXPECT_THAT(e.seen, Contains("Of these, rank 2 is the first in this text, in line 1."));
  EXPECT_THAT(e.seen, Contains(HasSubstr("rank 1 only waited for that")));
}

TEST(ShardedLogs, AnErrorOfAllRanks) {
  const auto e = first(
      "[rank0]: ValueError: Must flatten tensors with uniform dtype but got torch.bfloat16 and "
      "torch.float32\n"
      "[rank1]: ValueError: Must flatten tensors with uniform dtype but got torch.bfloat16 and "
      "torch.float32\n");
  EXPECT_THAT(e.ranks(), ElementsAre(0, 1));
  EXPECT_EQ(figure(e, "dtypes"), "torch.bfloat16");
  EXPECT_EQ(figure(e, "and"), "torch.float32");
  EXPECT_THAT(e.seen, Contains(HasSubstr("Every rank in this text raises it")));
}

TEST(ShardedLogs, FieldsOfMessages) {
  const auto gpu =
      first("Last error:\nDuplicate GPU detected : rank 3 and rank 0 both on CUDA device f000\n");
  EXPECT_EQ(figure(gpu, "ranks"), "rank 3 and rank 0");
  EXPECT_EQ(figure(gpu, "CUDA device"), "f000");
  const auto cuda = first(
      "[rank7]: NCCL error in: NCCLUtils.hpp:275, unhandled cuda error, NCCL version 2.20.5\n"
      "[rank7]: Last error:\n[rank7]: Cuda failure 2 'out of memory'\n");
  EXPECT_EQ(figure(cuda, "NCCL version"), "2.20.5");
  EXPECT_EQ(figure(cuda, "CUDA error"), "2 'out of memory'");
  EXPECT_EQ(figure(first("aten.add.Tensor: got mixed torch.Tensor and DTensor, need"), "operator"),
            "aten.add.Tensor");
  EXPECT_EQ(figure(first("Operator aten.select.int does not have a sharding strategy registered."),
                   "operator"),
            "aten.select.int");
  const auto size = first(
      "ValueError: Size mismatch between saved torch.Size([50304, 64]) and current: "
      "torch.Size([50257, 64]) for model.embed.weight");
  EXPECT_EQ(figure(size, "saved"), "torch.Size([50304, 64])");
  EXPECT_EQ(figure(size, "current"), "torch.Size([50257, 64])");
  EXPECT_THAT(size.fields[0].names, ElementsAre("model.embed.weight"));
  const auto missing = first(
      "RuntimeError: Missing key in checkpoint state_dict: model.a.\n"
      "RuntimeError: Missing key in checkpoint state_dict: model.b.\n");
  EXPECT_THAT(missing.fields[0].names, ElementsAre("model.a", "model.b"));
  // As torch 2.15 prints it, with the line that raises it.
  const auto traced = first(
      "    raise RuntimeError(f\"Missing key in checkpoint state_dict: {fqn}.\")\n"
      "RuntimeError: Missing key in checkpoint state_dict: model.b.\n");
  EXPECT_THAT(traced.fields[0].names, ElementsAre("model.b"));
  const auto zero = first(
      "{'id': 786, 'status': 'INFLIGHT', 'numel': 3, 'ds_shape': (50265, 768), "
      "'requires_grad': False}");
  EXPECT_EQ(figure(zero, "status"), "INFLIGHT");
  EXPECT_EQ(figure(zero, "shape"), "(50265, 768)");
  const auto batch = first(
      "AssertionError: global batch size (100) is not divisible by micro batch size (4) times data "
      "parallel size (8)");
  EXPECT_EQ(figure(batch, "micro batch size"), "4");
  EXPECT_EQ(figure(batch, "data parallel size"), "8");
  const auto mesh = first(
      "RuntimeError: Mesh should not be bigger than default world size 2, but found 4 ranks!");
  EXPECT_EQ(figure(mesh, "world size"), "2");
  EXPECT_EQ(figure(mesh, "ranks in the mesh"), "4");
}

// NVIDIA-NeMo/Speech#14399
TEST(ShardedLogs, RankZeroThatDidNotComeToTheFirstCollective) {
  const auto e = first(
      "trainer/0 [default1]:[rank1]: torch.distributed.DistBackendError: [1] is setting up NCCL "
      "communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but "
      "store->get('0') got error: wait timeout after 600000ms, keys: /default_pg/0//cuda//0\n"
      "[rank0]: ValueError: no such dataset\n");
  EXPECT_EQ(e.text, "own-error");
  EXPECT_THAT(e.ranks(), ElementsAre(0));
  EXPECT_THAT(e.seen, Contains(HasSubstr("Rank 0 raised it; rank 1 only waited for that")));
}

TEST(ShardedLogs, IsCertainOnlyWhereThereIsOneCause) {
  EXPECT_EQ(first("ValueError: Must flatten tensors with uniform `requires_grad`").certainty,
            Certainty::kCertain);
  EXPECT_EQ(first("RuntimeError: No backend type associated with device type cpu").certainty,
            Certainty::kLikely);
}

TEST(ShardedLogs, KnowsWhoseTheLastErrorIs) {
  const auto user = explain_log(
      "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n"
      "ValueError: bad sample\n");
  EXPECT_FALSE(user.last_error_in_library);
  const auto library = explain_log(
      "  File \"train.py\", line 3, in <module>\n"
      "  File \"/x/site-packages/torch/distributed/tensor/_api.py\", line 3, in f\n"
      "RuntimeError: something new\n");
  EXPECT_TRUE(library.last_error_in_library);
  EXPECT_TRUE(explain_log("torch.distributed.DistBackendError: new\n").last_error_in_library);
}

}  // namespace
}  // namespace ddp_doctor
