// SPDX-License-Identifier: BSD-3-Clause
// Tensors that say that they are on a GPU, and lie in the memory of the CPU, as
// tests/fakes/cuda_library.cpp wants them: who looks at them, and on which stream.
#include <c10/core/impl/FakeGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "lib/record/reader.h"
#include "lib/record/writer.h"
#include "probes/libtorch/module/cuda_stream.h"
#include "probes/libtorch/module/tensor_table.h"
#include "probes/libtorch/module/tensor_view.h"
#include "tests/temporary_folder.h"

// c10::cuda::CUDAStream::stream(), of a LibTorch with CUDA: here the stream's number is its handle.
__attribute__((visibility("default"))) void* native_stream(const c10::Stream* stream) __asm__(
    "_ZNK3c104cuda10CUDAStream6streamEv");
void* native_stream(const c10::Stream* stream) { return reinterpret_cast<void*>(stream->id()); }

namespace ddp_doctor {
namespace {

using testing::HasSubstr;
using testing::SizeIs;
using Guard = c10::impl::FakeGuardImpl<c10::DeviceType::CUDA>;

class DeviceTensors : public testing::Test {
 protected:
  DeviceTensors() {
    ::setenv("DDP_DOCTOR_CUDA_LIBRARY", DDP_DOCTOR_FAKE_CUDA, 1);
    table_.on_gradient([](int) {});
    table_.on_trouble([this](const std::string& text) { troubles_.push_back(text); });
  }

  static at::Tensor on_gpu(at::Tensor host, int device = 0) {
    const c10::Device gpu(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device));
    return at::from_blob(
        host.data_ptr(), host.sizes(), host.strides(), [host](void*) {}, host.options().device(gpu),
        gpu);
  }
  RankRecord record() {
    writer_.close();
    return RecordReader(record_file(folder_.path(), 0)).read();
  }
  void write_step(int number) {
    StepRecord step;
    step.step = number;
    step.examined = true;
    writer_.write_step(step);
  }

  Guard guard_;
  c10::impl::DeviceGuardImplRegistrar registrar_{c10::DeviceType::CUDA, &guard_};
  TemporaryFolder folder_;
  RecordHeader header_ = {.world_size = 1, .probe = "cpp"};
  RankWriter writer_{folder_.path(), header_, 1 << 20};
  TensorTable table_{writer_};
  std::vector<std::string> troubles_;
};

TEST_F(DeviceTensors, AreSeenOnTheStreamThatTheirGpuWorksOn) {
  guard_.exchangeStream(c10::Stream(c10::Stream::UNSAFE, {c10::DeviceType::CUDA, 3}, 42));
  EXPECT_EQ(current_cuda_stream(3), reinterpret_cast<void*>(42));
  EXPECT_EQ(current_cuda_stream(2), nullptr);
}

TEST_F(DeviceTensors, AreLookedAtWhereTheyAre) {
  const at::Tensor first = at::arange(5000, at::kFloat), second = at::ones({3, 3}, at::kBFloat16);
  const at::Tensor host = at::ones({2, 2});
  TensorTable::Pairs pairs;
  for (const auto& tensor : {on_gpu(first), on_gpu(second, 1), host})
    pairs.emplace_back(table_.add_unknown(tensor, pairs.size(), 0), tensor);
  table_.observe(Stage::kWeight, take::kDigest | take::kSample | take::kKeep, pairs);
  write_step(1);
  const RankRecord seen = record();
  EXPECT_THAT(troubles_, SizeIs(0));
  ASSERT_THAT(seen.steps, SizeIs(1));
  ASSERT_THAT(seen.steps[0].observations, SizeIs(3));
  for (const auto& observation : seen.steps[0].observations) {
    const auto& tensor = observation.tensor == 0 ? first : observation.tensor == 1 ? second : host;
    EXPECT_EQ(observation.digest.bits, digest(LocalTensor(tensor).view()).bits);
  }
  EXPECT_THAT(RecordReader(record_file(folder_.path(), 0)).values(1, 0, Stage::kWeight),
              SizeIs(first.nbytes()));
}

TEST_F(DeviceTensors, AreCopiedWhereTheGpuCannotLook) {
  const at::Tensor tensor = on_gpu(at::ones({4}), 7);  // which the stand-in does not have
  const TensorTable::Pairs pairs = {{table_.add_unknown(tensor, 0, 0), tensor}};
  for (int step = 1; step <= 2; ++step) {
    // Nothing here can copy from a GPU.
    EXPECT_THROW(table_.observe(Stage::kWeight, take::kDigest, pairs), c10::Error);
  }
  ASSERT_THAT(troubles_, SizeIs(1));
  EXPECT_THAT(troubles_[0], HasSubstr("are copied to the CPU to be examined"));
  EXPECT_THAT(troubles_[0], HasSubstr("no GPU of this number"));
}

TEST_F(DeviceTensors, OfDtypesWithoutADigestOfTheirOwnAreCopied) {
  const at::Tensor tensor = on_gpu(at::ones({4}, at::kComplexFloat));
  const TensorTable::Pairs pairs = {{table_.add_unknown(tensor, 0, 0), tensor}};
  EXPECT_THROW(table_.observe(Stage::kWeight, take::kDigest, pairs), c10::Error);
  EXPECT_THAT(troubles_, SizeIs(0));
}

}  // namespace
}  // namespace ddp_doctor
