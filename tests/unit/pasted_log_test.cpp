// SPDX-License-Identifier: BSD-3-Clause
// Logs as people paste them: labels of launchers, interleaved ranks, broken lines, junk, any size.

#include "lib/explain/pasted_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "lib/explain/explanation.h"

namespace ddp_doctor {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Rank -> its text, "-" for lines without a label.
std::map<std::string, std::string> streams_of(const std::string& text) {
  std::map<std::string, std::string> streams;
  for (const auto& stream : read_log(text).streams)
    streams[stream.rank ? std::to_string(*stream.rank) : "-"] = stream.text;
  return streams;
}

using Streams = std::map<std::string, std::string>;

TEST(PastedLog, TellsRanksApartByTheirLabels) {
  EXPECT_EQ(streams_of("[rank1]: a\n[rank0]: b\n[rank1]: c\nd"),
            (Streams{{"-", "d "}, {"0", "b "}, {"1", "a c "}}));
  EXPECT_EQ(streams_of("[rank1]:[E626 06:24:44.9 ProcessGroupNCCL.cpp:616] a"),
            (Streams{{"1", "[E626 06:24:44.9 ProcessGroupNCCL.cpp:616] a "}}));
  EXPECT_EQ(streams_of("[default1]:a\n[default0]: b"), (Streams{{"0", "b "}, {"1", "a "}}));
  EXPECT_EQ(streams_of("[1,0]<stderr>:a\n[1,2]<stdout>: b"), (Streams{{"0", "a "}, {"2", "b "}}));
  EXPECT_EQ(streams_of("[prterun-host-12@1,3]<stderr>: a"), (Streams{{"3", "a "}}));
  EXPECT_EQ(streams_of("1: a\n0: b\n1:\n1: c"), (Streams{{"0", "b "}, {"1", "a c "}}));
}

TEST(PastedLog, LooksPastWhatStandsBeforeALabel) {
  EXPECT_EQ(streams_of("2025-02-18 12:54 [rank13]: a"), (Streams{{"13", "a "}}));
  EXPECT_EQ(streams_of("[80746] [rank0]: a"), (Streams{{"0", "a "}}));
  EXPECT_EQ(streams_of("(WorkerDict pid=63294) [rank3]: a"), (Streams{{"3", "a "}}));
  EXPECT_EQ(streams_of("> [rank3]: a"), (Streams{{"3", "a "}}));
  EXPECT_EQ(streams_of("\x1b[36m[rank3]:\x1b[0m \x1b[1;31ma\x1b[0m"), (Streams{{"3", "a "}}));
  EXPECT_EQ(streams_of(" 50%|####   | 1/2\r[rank1]: a"),
            (Streams{{"-", "50%|#### | 1/2 "}, {"1", "a "}}));
}

// NVIDIA-NeMo/Speech#14399, pytorch/torchchat#1087
TEST(PastedLog, LabelsOfNestedLaunchers) {
  EXPECT_EQ(streams_of("trainer-0/3 [default1]:[rank9]: a\n[default1]:[rank9]: b"),
            (Streams{{"9", "a b "}}));
  EXPECT_EQ(streams_of("[rank1]:[rank1]: a"), (Streams{{"1", "a "}}));
}

TEST(PastedLog, TakesNothingElseForALabel) {
  EXPECT_EQ(streams_of("[1]: params[0] in this"), (Streams{{"-", "[1]: params[0] in this "}}));
  EXPECT_EQ(streams_of("[Rank 1] Watchdog"), (Streams{{"-", "[Rank 1] Watchdog "}}));
  // grep -n: these count lines.
  EXPECT_EQ(streams_of("7: a\n8: b\n9: c\n10: d").size(), 1u);
  EXPECT_EQ(streams_of("epoch\n1: loss 0.5\n").size(), 1u);
}

TEST(PastedLog, JoinsBrokenLinesAndKnowsWhereTheyStood) {
  const auto log = read_log("a\r\n\n  b   c\n[rank0]: d\\ne");
  ASSERT_EQ(log.streams.size(), 2u);
  EXPECT_EQ(log.lines, 4u);
  EXPECT_EQ(log.streams[0].text, "a b c ");
  EXPECT_EQ(log.streams[0].number_at(2), 3u);
  // The two letters \n of a log in JSON break a line whose label holds for all of it.
  EXPECT_EQ(log.streams[1].text, "d e ");
}

TEST(PastedLog, FindsTheUsersProgram) {
  EXPECT_EQ(program_in(read_log("  File \"/usr/bin/torchrun\", line 8, in <module>\n"
                                "  File \"/home/me/train.py\", line 9, in <module>\n")),
            "/home/me/train.py");
  EXPECT_EQ(program_in(read_log("  File \"/home/$(x)/train.py\", line 9, in <module>")),
            std::nullopt);
}

const std::string kHead =
    "RuntimeError: Expected to have finished reduction in the prior iteration before starting a "
    "new "
    "one. This error indicates that your module has parameters that were not used in producing "
    "loss.";

TEST(PastedLog, MessagesOfInterleavedRanks) {
  for (const std::string form : {"[rank%]: ", "[1,%]<stderr>:", "%: ", "[default%]:"}) {
    const auto label = [&](int rank) {
      std::string text = form;
      return text.replace(text.find('%'), 1, std::to_string(rank));
    };
    const auto list = [](int rank, const char* indices) {
      return "Parameter indices which did not receive grad for rank " + std::to_string(rank) +
             ": " + indices;
    };
    const auto log = explain_log(label(0) + kHead + "\n" + label(1) + kHead + "\n" + label(1) +
                                 list(1, "2 3") + "\n" + label(0) + list(0, "4 5") + "\n");
    ASSERT_EQ(log.explanations.size(), 1u) << form;
    const auto& e = log.explanations[0];
    EXPECT_THAT(e.ranks(), ElementsAre(0, 1)) << form;
    EXPECT_THAT(e.fields[0].indices, ElementsAre(4, 5)) << form;
    EXPECT_THAT(e.fields[1].indices, ElementsAre(2, 3)) << form;
    EXPECT_EQ(e.rules.front(), "DDP202") << form;
  }
}

TEST(PastedLog, AMessageBrokenByATerminal) {
  std::string narrow;
  for (std::size_t i = 0; i < kHead.size(); ++i) {
    narrow += kHead[i];
    if (i % 20 > 14 && kHead[i] == ' ') narrow += '\n';
  }
  EXPECT_EQ(explain_log(narrow).explanations.size(), 1u);
  const auto watchdog = explain_log(
      "[rank2]:[E424 ProcessGroupNCCL.cpp:629] [Rank 2] Watchdog caught collective operation "
      "timeout: WorkNCCL(SeqNum=4, OpTy\npe=BROADCAST, NumelIn=112, Numel\nOut=112, "
      "Timeout(ms)=1800000) ran for 1800010 milliseconds");
  ASSERT_EQ(watchdog.explanations.size(), 1u);
  EXPECT_THAT(watchdog.explanations[0].ranks(), ElementsAre(2));
}

TEST(PastedLog, NothingKnown) {
  EXPECT_THAT(explain_log("").explanations, IsEmpty());
  EXPECT_THAT(explain_log("\n\n \t\r\n").explanations, IsEmpty());
  const auto log = explain_log("Traceback (most recent call last):\nValueError: bad sample\n");
  EXPECT_THAT(log.explanations, IsEmpty());
  EXPECT_EQ(log.last_error, "ValueError: bad sample");
  // Said by many programs.
  EXPECT_THAT(
      explain_log("ConnectionResetError: [Errno 104] Connection reset by peer").explanations,
      IsEmpty());
  EXPECT_THAT(explain_log("BrokenPipeError: [Errno 32] Broken pipe").explanations, IsEmpty());
}

TEST(PastedLog, SurvivesJunk) {
  const std::vector<std::string> bits = {kHead,
                                         "Parameter indices which did not receive grad for rank ",
                                         "99999999999999999999",
                                         ": ",
                                         "CollectiveFingerPrint(",
                                         " is running collective: ",
                                         "Rank ",
                                         "[rank",
                                         "]",
                                         "[1,",
                                         ">",
                                         "<stderr>:",
                                         "op.preamble.length <= op.nbytes",
                                         " vs ",
                                         "WorkNCCL(SeqNum=",
                                         "ollective operation timeout",
                                         "] in this process with ",
                                         "last enqueued ",
                                         " failed to pass monitoredBarrier",
                                         "Root Cause (first observed failure)",
                                         "rank : ",
                                         " has been marked as ready twice",
                                         "Parameter at index ",
                                         " did not get gradient in backwards pass",
                                         "\n",
                                         "\r",
                                         "\\n",
                                         "\x1b[",
                                         std::string(1, '\0'),
                                         "\xff\xfe",
                                         "File \"",
                                         ", in <module>",
                                         "-1",
                                         "..."};
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (int i = 0; i < 60; ++i) {
      text += random() % 4 == 0 ? std::string(1, static_cast<char>(random() % 256))
                                : bits[random() % bits.size()];
    }
    for (const auto& explanation : explain_log(text).explanations)
      EXPECT_FALSE(explanation.says.empty());
  }
}

std::string repeated(const std::string& piece, std::size_t size) {
  std::string text;
  while (text.size() < size) text += piece;
  return text;
}

double seconds_to_explain(const std::string& text) {
  const auto begin = std::chrono::steady_clock::now();
  explain_log(text);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Some 0.2 s; the bound is for sanitizers, and for machines that do something else as well.
TEST(PastedLog, TenMegabytes) {
  EXPECT_LT(seconds_to_explain(repeated("[rank0]: step 17 loss 0.25\n", 10'000'000)), 10);
  EXPECT_LT(seconds_to_explain(repeated("E", 10'000'000)), 10);
}

// What would take hours if it were quadratic, or end the stack if it recursed.
TEST(PastedLog, TakesTimeInProportionToTheSize) {
  for (const std::string piece :
       {"1 ", "\n", "\\n", "\r", "[1, in <module>",
        "Rank 1 is running collective: ", "x which did not receive grad for rank 1 ",
        "Parameter indices which did not receive grad for rank 1: 7 ",
        "Rank -1 failed to pass monitoredBarrier in ", "] in this process with "}) {
    EXPECT_LT(seconds_to_explain(repeated(piece, 1'000'000)), 10) << piece;
    EXPECT_LT(seconds_to_explain(repeated(kHead + piece, 1'000'000)), 10) << piece;
  }
  EXPECT_LT(seconds_to_explain("Parameter indices which did not receive grad for rank 0: " +
                               repeated("7 ", 1'000'000)),
            10);
}

}  // namespace
}  // namespace ddp_doctor
