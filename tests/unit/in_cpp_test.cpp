// SPDX-License-Identifier: BSD-3-Clause
// What is said of a program in C++ names nothing that only Python has.

#include "lib/diagnose/in_cpp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/run_builder.h"

namespace ddp_doctor {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

RunBuilder in_language(const std::string& probe, RunBuilder run) {
  for (int rank : {0, 1}) run.record(rank).header.probe = probe;
  return run;
}

std::string said_of(const std::string& code, RunBuilder run) {
  const auto finding = found(code, run);
  return finding ? finding->message + " " + finding->prescription.text : "";
}

RunBuilder wrapped() { return RunBuilder(2, {"a", "b"}, 3).wrapper({{"static_graph", "0"}}); }

TEST(InCpp, CallsTheWrapper) {
  auto run = wrapped();
  run.each_step([](int, StepRecord& step) {
    step.forwards_through_wrapper = 0;
    step.forwards_around_wrapper = 1;
  });
  for (int step = 1; step <= 3; ++step) run.differ(1, 0, Stage::kGradient, step);
  EXPECT_THAT(said_of("DDP101", in_language("cpp", run)),
              AllOf(HasSubstr("ddp(input)"), Not(HasSubstr("ddp.module(x)"))));
  EXPECT_THAT(said_of("DDP101", in_language("python", run)), HasSubstr("ddp.module(x)"));
}

TEST(InCpp, WrapsTheModel) {
  RunBuilder run(2, {"a", "b"}, 3);
  for (int step = 1; step <= 3; ++step) run.differ(1, 0, Stage::kGradient, step);
  for (int step = 1; step <= 3; ++step) run.differ(1, 1, Stage::kGradient, step);
  EXPECT_THAT(said_of("DDP102", in_language("cpp", run)),
              HasSubstr("ddp_doctor::DistributedDataParallel ddp(model, process_group)"));
}

TEST(InCpp, SetsOptions) {
  auto run = wrapped();
  run.unused(0, 0).unused(1, 0);
  EXPECT_THAT(
      said_of("DDP201", in_language("cpp", run)),
      AllOf(HasSubstr("static_graph = true"), Not(HasSubstr("=True")), Not(HasSubstr("=False"))));
}

TEST(InCpp, LeavesOutWhatLibTorchDoesNotHave) {
  EXPECT_EQ(in_cpp("Set broadcast_buffers=True, use SyncBatchNorm, or all-reduce the statistics."),
            "Set broadcast_buffers = true or all-reduce the statistics.");
  EXPECT_EQ(in_cpp("Freeze the bias (requires_grad=False), then requires_grad=False again."),
            "Freeze the bias (requires_grad_(false)), then requires_grad_(false) again.");
}

}  // namespace
}  // namespace ddp_doctor
