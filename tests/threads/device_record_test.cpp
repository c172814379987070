// SPDX-License-Identifier: BSD-3-Clause
// Tensors of a GPU, through the C API into the record: tests/fakes/cuda_library.cpp stands in for
// the GPU.

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "lib/record/reader.h"
#include "lib/record/writer.h"
#include "lib/recorder/probe_api.h"
#include "tests/probe_step.h"
#include "tests/temporary_folder.h"

namespace ddp_doctor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

constexpr char kHeader[] =
    R"({"rank":0,"world_size":1,"probe":"python","program":"t.py","details":{}})";
constexpr char kTensors[] =
    R"([{"id":0,"name":"w","kind":"parameter","dtype":"float32","sizes":[4],"trainable":true,"ddp_index":0,"wrapper":0}])";

class DeviceRecord : public testing::Test {
 protected:
  DeviceRecord() {
    ::setenv("DDP_DOCTOR_CUDA_LIBRARY", DDP_DOCTOR_FAKE_CUDA, 1);
    record_ = ddpd_open(folder_.path().c_str(), kHeader, 1 << 20);
    EXPECT_EQ(ddpd_tensors(record_, kTensors), 0) << ddpd_error();
  }
  ~DeviceRecord() override { ddpd_close(record_); }

  int observe(int what, int device = 0) {
    const std::int32_t ids[] = {0};
    const void* data[] = {weight_.data()};
    return ddpd_observe_on_device(record_, static_cast<int>(Stage::kWeight), what, device, nullptr,
                                  1, ids, data);
  }
  // Whether the GPU comes no further.
  static void hold(bool held) {
    void* library = ::dlopen(DDP_DOCTOR_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
    reinterpret_cast<void (*)(int)>(::dlsym(library, "ddpc_fake_hold"))(held ? 1 : 0);
  }
  void write_step() { ASSERT_EQ(ddp_doctor::write_step(record_), 0) << ddpd_error(); }
  void close() {
    ddpd_close(record_);
    record_ = nullptr;
  }
  std::vector<StepRecord> steps() const {
    return RecordReader(record_file(folder_.path(), 0)).read().steps;
  }

  TemporaryFolder folder_;
  std::vector<float> weight_ = {3, 0, 0, 4};
  ddpd_record* record_ = nullptr;
};

TEST_F(DeviceRecord, HasWhatTheGpuSawOnceItHasComeSoFar) {
  hold(true);
  ASSERT_EQ(observe(DDPD_DIGEST | DDPD_SAMPLE | DDPD_KEEP), 0) << ddpd_error();
  write_step();
  write_step();
  EXPECT_THAT(steps(), IsEmpty());
  hold(false);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (steps().size() < 2 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ASSERT_THAT(steps(), SizeIs(2));
  const StepRecord step = steps().front();
  EXPECT_EQ(step.step, 1);
  ASSERT_THAT(step.observations, SizeIs(1));
  const std::int64_t size[] = {4}, stride[] = {1};
  const TensorDigest expected = digest({weight_.data(), DType::kFloat32, size, stride});
  EXPECT_EQ(step.observations[0].digest.bits, expected.bits);
  EXPECT_EQ(step.observations[0].digest.l2_norm, 5.0);
  ASSERT_THAT(step.samples, SizeIs(1));
  EXPECT_THAT(step.samples[0].values, ElementsAre(3, 0, 0, 4));
  EXPECT_THAT(RecordReader(record_file(folder_.path(), 0)).values(1, 0, Stage::kWeight),
              SizeIs(16));
}

TEST_F(DeviceRecord, IsCompleteWhenItIsClosed) {
  for (int step = 1; step <= 3; ++step) {
    ASSERT_EQ(observe(DDPD_DIGEST), 0);
    write_step();
  }
  close();
  ASSERT_THAT(steps(), SizeIs(3));
  for (const auto& step : steps()) EXPECT_THAT(step.observations, SizeIs(1));
}

TEST_F(DeviceRecord, TakesTheLossFromTheGpu) {
  const std::vector<float> losses = {2, 4};
  for (const float& loss : losses)
    ASSERT_EQ(ddpd_loss_on_device(record_, 0, nullptr, &loss, "float32"), 0) << ddpd_error();
  write_step();
  close();
  EXPECT_EQ(steps().at(0).loss, 3.0);
}

// A kernel that reads there would end the program.
TEST_F(DeviceRecord, AsksNothingOfATensorWithoutMemory) {
  EXPECT_NE(ddpd_loss_on_device(record_, 0, nullptr, nullptr, "float32"), 0);
  EXPECT_THAT(ddpd_error(), HasSubstr("no memory"));
  const std::int32_t ids[] = {0};
  const void* data[] = {nullptr};
  EXPECT_NE(ddpd_observe_on_device(record_, static_cast<int>(Stage::kWeight), DDPD_DIGEST, 0,
                                   nullptr, 1, ids, data),
            0);
  EXPECT_THAT(ddpd_error(), HasSubstr("no memory"));
}

TEST_F(DeviceRecord, ForgetsWhatWasAskedOfTheGpu) {
  ASSERT_EQ(observe(DDPD_DIGEST), 0);
  ddpd_forget(record_);
  write_step();
  ASSERT_THAT(steps(), SizeIs(1));
  EXPECT_THAT(steps()[0].observations, IsEmpty());
}

TEST_F(DeviceRecord, SaysThatAStepOfABrokenGpuIsLost) {
  ASSERT_EQ(observe(DDPD_DIGEST, 8), 0);
  write_step();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (ddp_doctor::write_step(record_) == 0 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_THAT(ddpd_error(), HasSubstr("no GPU of this number"));
  const auto last = ddpd_step_number(record_);
  write_step();
  close();
  ASSERT_THAT(steps(), Not(IsEmpty()));
  EXPECT_EQ(steps().back().step, last);
}

TEST_F(DeviceRecord, SaysWhyAGpuCannotBeUsed) {
  EXPECT_NE(observe(DDPD_DIGEST, 7), 0);
  EXPECT_THAT(ddpd_error(), HasSubstr("no GPU of this number"));
  write_step();
  EXPECT_THAT(steps(), SizeIs(1));
}

}  // namespace
}  // namespace ddp_doctor
