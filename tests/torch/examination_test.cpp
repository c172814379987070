// SPDX-License-Identifier: BSD-3-Clause
// What an Examination sees of ranks that are threads of this test, and that it changes nothing.
#include <ddp_doctor/distributed_data_parallel.h>
#include <ddp_doctor/examination.h>
#include <ddp_doctor/observed_process_group.h>
#include <ddp_doctor/testing.h>
#include <gtest/gtest.h>

#include "lib/error.h"
#include "lib/record/reader.h"
#include "lib/record/writer.h"
#include "tests/temporary_folder.h"
#include "tests/torch/ddp_models.h"
#include "tests/torch/ddp_ranks.h"

namespace ddp_doctor::test {
namespace {

using testing::Not;
using torch::optim::SGD;

struct Job {
  TemporaryFolder folder;
  Check check() const { return check_records(folder.path()); }
  RankRecord record(int rank) const {
    return RecordReader(record_file(folder.path(), rank)).read();
  }
  void on(int ranks, const std::function<void(int rank, const ProcessGroupPtr& group)>& train) {
    on_ranks(ranks, [&](int rank, const ProcessGroupPtr& group) {
      const Examination examination(group, {.folder = folder.path()});
      train(rank, group);
    });
  }
};

at::Tensor input_of(int rank, int step) { return tensor_of({2.F, 4.F}) * (rank + 1) * step; }

// Four steps; `loss(ddp, input, step)` is the program's own way to get a loss.
template <class Loss>
auto training(const Loss& loss, const DistributedDataParallelOptions& options = {}) {
  return [=](int rank, const ProcessGroupPtr& group) {
    DistributedDataParallel ddp(Scale(), group, options);
    Observed<SGD> optimizer(ddp.module()->parameters(), 0.01);
    for (int step = 1; step <= 4; ++step) {
      optimizer.zero_grad();
      loss(ddp, input_of(rank, step), step).backward();
      optimizer.step();
    }
  };
}

TEST(Examination, FindsNothingInATrainingThatSynchronizes) {
  Job job;
  job.on(2, training([](auto& ddp, const at::Tensor& input, int) { return ddp(input); }));
  EXPECT_THAT(job.check(), IsInSync());
  EXPECT_EQ(job.check().steps, 4);
}

TEST(Examination, RecordsWhatThePythonProbeRecords) {
  Job job;
  job.on(2, training([](auto& ddp, const at::Tensor& input, int) { return ddp(input); }));
  const RankRecord record = job.record(1);
  EXPECT_EQ(record.header.probe, "cpp");
  ASSERT_EQ(record.tensors.size(), 1U);
  EXPECT_EQ(record.tensors[0].name, "weight");
  EXPECT_EQ(record.tensors[0].ddp_index, 0);
  ASSERT_EQ(record.steps.size(), 5U);  // and the state before the first
  const StepRecord& step = record.steps[2];
  EXPECT_EQ(step.trace, "F0+ B0+");
  EXPECT_EQ(step.backwards, 1);
  EXPECT_EQ(step.forwards_through_wrapper, 1);
  std::set<Stage> stages;
  for (const auto& seen : step.observations) stages.insert(seen.stage);
  EXPECT_EQ(stages, (std::set{Stage::kLocalGradient, Stage::kGradient, Stage::kWeight,
                              Stage::kReducedGradient}));
  ASSERT_EQ(step.usages.size(), 1U);
  EXPECT_TRUE(step.usages[0].used);
  EXPECT_EQ(step.usages[0].arrivals, 1);
}

TEST(Examination, FindsABypassedWrapperFromTheStepOn) {
  Job job;
  job.on(2, training([](auto& ddp, const at::Tensor& input, int step) {
           return step < 3 ? ddp(input) : ddp.module()->forward(input);
         }));
  const Check check = job.check();
  EXPECT_THAT(check, HasFinding("DDP101"));
  EXPECT_THAT(check, Not(IsInSync()));
  ASSERT_FALSE(check.findings.empty());
  EXPECT_EQ(check.findings[0].rule, "DDP101");
  EXPECT_EQ(check.findings[0].first_step, 3);
}

TEST(Examination, APenaltyOnTheWeightsIsNoForwardAroundTheWrapper) {
  Job job;
  job.on(2, training([](auto& ddp, const at::Tensor& input, int) {
           return ddp(input) + ddp.module()->weight.pow(2).sum();
         }));
  EXPECT_THAT(job.check(), IsInSync());
  EXPECT_EQ(job.record(0).steps[1].forwards_around_wrapper, 0);
}

TEST(Examination, FindsAStepOnGradientsLeftUnderNoSync) {
  Job job;
  job.on(2, [](int rank, const ProcessGroupPtr& group) {
    DistributedDataParallel ddp(Scale(), group);
    Observed<SGD> optimizer(ddp.module()->parameters(), 0.01);
    for (int step = 1; step <= 3; ++step) {
      optimizer.zero_grad();
      const NoSync no_sync = ddp.no_sync();
      ddp(input_of(rank, step)).backward();
      optimizer.step();
    }
  });
  EXPECT_THAT(job.check(), HasFinding("step-without-sync"));
}

TEST(Examination, FindsWhatAHandWrittenAllReduceForgets) {
  Job job;
  job.on(2, [](int rank, const ProcessGroupPtr& plain) {
    const auto group = observed(plain);
    Branches model;
    Observed<SGD> optimizer(model->parameters(), 0.01);
    for (int step = 1; step <= 3; ++step) {
      optimizer.zero_grad();
      model->forward(input_of(rank, step), "abc").backward();
      for (auto& parameter : {model->a->weight, model->b->weight}) {
        std::vector<at::Tensor> gradient{parameter.grad()};
        group->allreduce(gradient)->wait();
        gradient.front().div_(2);
      }
      optimizer.step();
    }
  });
  const Check check = job.check();
  ASSERT_FALSE(check.findings.empty());
  EXPECT_EQ(check.findings[0].rule, "DDP104") << check.report;
  EXPECT_EQ(job.record(0).steps[1].collectives, 2);
  EXPECT_EQ(job.record(0).steps[1].trace, "Bu Cg*2");
}

// Autograd forgets all hooks of a parameter that a checkpoint is read into.
TEST(Examination, FollowsParametersIntoWhichACheckpointWasLoaded) {
  Job job;
  job.on(2, [](int rank, const ProcessGroupPtr& plain) {
    const auto group = observed(plain);
    Scale by_hand, wrapped;
    DistributedDataParallel ddp(wrapped, group);
    Observed<SGD> first(by_hand->parameters(), 0.01), second(wrapped->parameters(), 0.01);
    for (int step = 1; step <= 5; ++step) {
      if (step == 3) {
        for (const Scale& model : {by_hand, wrapped}) {
          std::stringstream checkpoint;
          torch::save(model, checkpoint);
          Scale same = model;
          torch::load(same, checkpoint);
        }
      }
      first.zero_grad();
      second.zero_grad();
      by_hand(input_of(rank, step)).backward();
      std::vector<at::Tensor> gradient{by_hand->weight.grad()};
      group->allreduce(gradient)->wait();
      gradient.front().div_(2);
      first.step();
      ddp(input_of(rank, step)).backward();
      second.step();
    }
  });
  EXPECT_THAT(job.check(), IsInSync());
}

TEST(Examination, RefusesToBeginAfterAWrapper) {
  Job job;
  on_ranks(2, [&](int, const ProcessGroupPtr& group) {
    const DistributedDataParallel ddp(Scale(), group);
    EXPECT_THROW(Examination(group, {.folder = job.folder.path()}), Error);
  });
}

TEST(Examination, TakesNoUnseenSynchronizationForDuplicateData) {
  Job job;
  job.on(2, [](int rank, const ProcessGroupPtr& group) {  // not observed()
    Branches model;
    Observed<SGD> optimizer(model->parameters(), 0.01);
    for (int step = 1; step <= 8; ++step) {
      optimizer.zero_grad();
      model->forward(input_of(rank, step), "abc").backward();
      for (auto& parameter : model->parameters()) {
        std::vector<at::Tensor> gradient{parameter.grad()};
        group->allreduce(gradient)->wait();
        gradient.front().div_(2);
      }
      optimizer.step();
    }
  });
  EXPECT_THAT(job.check(), Not(HasFinding("DDP401")));
}

TEST(Examination, TellsAModuleThatIsNeverCalledFromOneWhoseResultIsDropped) {
  Job job;
  job.on(2, [](int rank, const ProcessGroupPtr& group) {
    DistributedDataParallel ddp(Branches(), group, {.find_unused_parameters = true});
    Observed<SGD> optimizer(ddp.module()->parameters(), 0.01);
    for (int step = 1; step <= 4; ++step) {
      optimizer.zero_grad();
      ddp(input_of(rank, step), "ab").backward();
      optimizer.step();
    }
  });
  const Check check = job.check();
  ASSERT_NE(check.find("DDP201"), nullptr) << check.report;
  EXPECT_THAT(check.find("DDP201")->message, testing::HasSubstr("not read by any operation"))
      << check.report;
}

TEST(Examination, FindsParametersThatTookThePlaceOfWrappedOnes) {
  Job job;
  job.on(2, [](int rank, const ProcessGroupPtr& group) {
    Branches model;
    DistributedDataParallel ddp(model, group, {.find_unused_parameters = true});
    model->b = model->replace_module("b", Scale());
    Observed<SGD> optimizer(model->parameters(), 0.01);
    for (int step = 1; step <= 4; ++step) {
      optimizer.zero_grad();
      ddp(input_of(rank, step), "abc").backward();
      optimizer.step();
    }
  });
  const Check check = job.check();
  EXPECT_THAT(check, HasFindingIn("DDP105", "b.weight"));
  EXPECT_THAT(check, Not(HasFinding("DDP106")));
}

TEST(Examination, ACheckpointLoadedWhereTheWrapperIsBypassedIsNoOtherBug) {
  Job job;
  job.on(2, [](int rank, const ProcessGroupPtr& group) {
    Branches model;
    DistributedDataParallel ddp(model, group);
    Observed<SGD> optimizer(model->parameters(), 0.01);
    for (int step = 1; step <= 6; ++step) {
      if (step == 3) {
        std::stringstream checkpoint;
        torch::save(model, checkpoint);
        torch::load(model, checkpoint);
      }
      optimizer.zero_grad();
      model->forward(input_of(rank, step), "abc").backward();
      optimizer.step();
    }
  });
  const Check check = job.check();
  EXPECT_THAT(check, HasFinding("DDP101"));
  EXPECT_THAT(check, Not(HasFinding("DDP110")));
}

TEST(Examination, AnOptimizerThatItMeetsAtItsFirstStepIsExaminedFromTheSecondOn) {
  Job job;
  on_ranks(2, [&](int rank, const ProcessGroupPtr& plain) {
    const auto group = observed(plain);
    Examination examination(group, {.folder = job.folder.path()});
    Branches model;
    SGD optimizer(model->parameters(), 0.01);
    for (int step = 1; step <= 3; ++step) {
      optimizer.zero_grad();
      model->forward(input_of(rank, step), "abc").backward();
      for (auto& parameter : model->parameters()) {
        std::vector<at::Tensor> gradient{parameter.grad()};
        group->allreduce(gradient)->wait();
        gradient.front().div_(2);
      }
      examination.step(optimizer);
    }
  });
  EXPECT_THAT(job.check(), IsInSync());
  EXPECT_FALSE(job.record(0).steps[1].examined);
  EXPECT_TRUE(job.record(0).steps[2].examined);
}

TEST(Examination, NamesParametersOfAttachedModules) {
  Job job;
  on_ranks(2, [&](int rank, const ProcessGroupPtr& group) {
    Examination examination(group, {.folder = job.folder.path()});
    Branches model;
    examination.attach(model);
    SGD optimizer(model->parameters(), 0.01);
    examination.attach(optimizer);
    model->forward(input_of(rank, 1), "abc").backward();
    examination.step(optimizer);
  });
  EXPECT_EQ(job.record(0).tensors[0].name, "a.weight");
  EXPECT_THAT(job.check(), HasFinding("DDP102"));
}

TEST(Examination, ChecksWhileTheRanksTrain) {
  const TemporaryFolder folder;
  on_ranks(2, [&](int rank, const ProcessGroupPtr& group) {
    const Examination examination(group, {.folder = folder.path()});
    DistributedDataParallel ddp(Scale(), group);
    Observed<SGD> optimizer(ddp.module()->parameters(), 0.01);
    const auto step = [&](bool through) {
      optimizer.zero_grad();
      const at::Tensor input = input_of(rank, 1);
      (through ? ddp(input) : ddp.module()->forward(input)).backward();
      optimizer.step();
      group->barrier()->wait();
    };
    step(true);
    step(true);
    EXPECT_THAT(check_records(examination.folder()), IsInSync());
    group->barrier()->wait();
    step(false);
    EXPECT_THAT(check_records(examination.folder()), HasFinding("DDP101"));
    group->barrier()->wait();
  });
}

TEST(Examination, ChangesNoBitOfTheTraining) {
  const auto weights = [](bool examined) {
    const TemporaryFolder folder;
    std::vector<at::Tensor> weights(2);
    on_ranks(2, [&](int rank, const ProcessGroupPtr& group) {
      std::optional<Examination> examination;
      if (examined) examination.emplace(group, ExaminationSettings{.folder = folder.path()});
      torch::nn::Linear model(3, 3);
      {  // not drawn: the ranks are threads, and share the generator
        const torch::NoGradGuard no_grad;
        model->weight.copy_(torch::arange(9).view({3, 3}).div(10));
        model->bias.zero_();
      }
      DistributedDataParallel ddp(model, group, {.find_unused_parameters = true});
      Observed<torch::optim::Adam> optimizer(model->parameters(), 0.1);
      for (int step = 1; step <= 5; ++step) {
        optimizer.zero_grad();
        ddp(torch::full({2, 3}, 0.1 * step * (rank + 1))).pow(2).sum().backward();
        optimizer.step();
      }
      weights[rank] = model->weight.detach().clone();
    });
    return weights;
  };
  const auto with = weights(true);
  const auto without = weights(false);
  for (int rank = 0; rank < 2; ++rank) EXPECT_TRUE(with[rank].equal(without[rank]));
}

TEST(Examination, DoesNothingWhereNobodyExamines) {
  unsetenv("DDP_DOCTOR_RECORD");
  on_ranks(1, [](int rank, const ProcessGroupPtr& group) {
    const Examination examination(group);
    EXPECT_FALSE(examination.active());
    EXPECT_TRUE(examination.folder().empty());
    training([](auto& ddp, const at::Tensor& input, int) { return ddp(input); })(rank, group);
  });
}

TEST(Examination, AFolderThatCannotBeWrittenIsAnError) {
  on_ranks(1, [](int, const ProcessGroupPtr& group) {
    EXPECT_THROW(Examination(group, {.folder = "/proc/nowhere"}), Error);
  });
}

TEST(Examination, SaysWhatTheProgramRaised) {
  Job job;
  try {
    job.on(1, [](int rank, const ProcessGroupPtr& group) {
      DistributedDataParallel ddp(Branches(), group);
      for (int step = 1; step <= 3; ++step) ddp(input_of(rank, step), "a").backward();
    });
    FAIL() << "the second forward was to raise";
  } catch (const c10::Error&) {
  }
  const auto events = job.record(0).events;
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].kind, "error");
  EXPECT_THAT(events[0].text, testing::HasSubstr("Expected to have finished reduction"));
}

TEST(ObservedProcessGroup, HandsBackWhatTheGroupBehindItGives) {
  on_ranks(2, [](int rank, const ProcessGroupPtr& plain) {
    const auto group = observed(plain);
    EXPECT_EQ(group->getRank(), rank);
    EXPECT_EQ(group->getSize(), 2);
    std::vector<at::Tensor> sum{tensor_of({1.F + rank})};
    EXPECT_TRUE(group->allreduce(sum)->wait());
    EXPECT_TRUE(sum[0].equal(tensor_of({3})));
    std::vector<std::vector<at::Tensor>> all{{at::zeros({1}), at::zeros({1})}};
    std::vector<at::Tensor> own{tensor_of({1.F + rank})};
    group->allgather(all, own)->wait();
    EXPECT_TRUE(all[0][1].equal(tensor_of({2})));
    group->barrier()->wait();
  });
}

TEST(ObservedProcessGroup, LogsTheProgramsCollectivesAndNoneOfAWrapper) {
  Job job;
  job.on(2, [](int rank, const ProcessGroupPtr& plain) {
    const auto group = observed(plain);
    DistributedDataParallel ddp(Scale(), group);
    Observed<SGD> optimizer(ddp.module()->parameters(), 0.01);
    at::Tensor loss = ddp(input_of(rank, 1));
    loss.backward();
    std::vector<at::Tensor> mean{loss.detach().clone()};
    group->allreduce(mean)->wait();
    optimizer.step();
  });
  const StepRecord step = job.record(0).steps.back();
  EXPECT_EQ(step.collectives, 1);
  EXPECT_EQ(step.trace, "F0+ B0+ C");
  ASSERT_EQ(step.calls.size(), 1U);
  EXPECT_EQ(step.calls[0].op, "all_reduce");
  EXPECT_EQ(step.calls[0].reduce, "sum");
  EXPECT_EQ(step.calls[0].moment, "before-step");
}

}  // namespace
}  // namespace ddp_doctor::test
