// SPDX-License-Identifier: BSD-3-Clause
#include "lib/digest/cuda/cuda_api.h"

#include <algorithm>
#include <array>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "lib/digest/cuda/driver.h"
#include "lib/digest/cuda/plan.h"
#include "lib/error.h"

// The kernels as PTX, which every driver can compile: lib/CMakeLists.txt.
extern "C" const char ddp_doctor_digest_ptx[];

using namespace ddp_doctor;
using namespace ddp_doctor::cuda;

namespace {

constexpr unsigned kThreads = 256;

thread_local std::string last_error;

template <class Work>
bool guarded(const Work& work) noexcept {
  try {
    work();
    return true;
  } catch (const std::exception& error) {
    try {
      last_error = error.what();
    } catch (...) {
    }
  } catch (...) {
  }
  return false;
}

}  // namespace

namespace ddp_doctor::cuda {

// Pinned host memory that the GPU writes to. Allocating takes milliseconds, so it is allocated in
// large pieces and kept.
class PinnedMemory {
 public:
  struct Range {
    std::byte* data = nullptr;
    std::size_t chunk = 0;
  };

  Range take(std::size_t bytes) {
    bytes = (bytes + kAlign - 1) / kAlign * kAlign;
    for (std::size_t i = 0; i < chunks_.size(); ++i)
      if (chunks_[i].size - chunks_[i].used >= bytes) return within(i, bytes);
    Chunk chunk;
    chunk.size = std::max(bytes, kChunk);
    void* data = nullptr;
    check(driver().host_allocate(&data, chunk.size, kHostPortable | kHostMapped),
          "allocating pinned memory");
    chunk.data = static_cast<std::byte*>(data);
    chunks_.push_back(chunk);
    return within(chunks_.size() - 1, bytes);
  }

  void give_back(const Range& range) {
    Chunk& chunk = chunks_[range.chunk];
    if (--chunk.taken == 0) chunk.used = 0;
  }

 private:
  static constexpr std::size_t kAlign = 64, kChunk = std::size_t{16} << 20;
  struct Chunk {
    std::byte* data = nullptr;
    std::size_t size = 0, used = 0, taken = 0;
  };

  Range within(std::size_t number, std::size_t bytes) {
    Chunk& chunk = chunks_[number];
    const Range range{chunk.data + chunk.used, number};
    chunk.used += bytes;
    ++chunk.taken;
    return range;
  }

  std::vector<Chunk> chunks_;
};

// Makes the device's context current for this thread during its lifetime, without affecting graphs
// that another thread may be capturing.
class Within {
 public:
  explicit Within(Handle context) {
    check(driver().push(context), "selecting the GPU");
    driver().capture_mode(&mode_);
  }
  ~Within() {
    driver().capture_mode(&mode_);
    Handle context;
    driver().pop(&context);
  }
  Within(const Within&) = delete;
  Within& operator=(const Within&) = delete;

 private:
  int mode_ = kCaptureRelaxed;
};

class Gpu {
 public:
  explicit Gpu(int ordinal) {
    int device = 0;
    check(driver().device_get(&device, ordinal), "finding the GPU");
    check(driver().primary_context(&context_, device), "using the GPU");
    const Within within(context_);
    Handle module = nullptr;
    check(driver().load_module(&module, ddp_doctor_digest_ptx), "compiling the digest's kernel");
    check(driver().function(&kernel_, module, "ddp_doctor_digest_kernel"),
          "finding the digest's kernel");
    std::size_t bytes = 0;
    check(driver().global(&launches_, &bytes, module, "ddp_doctor_launches"),
          "finding the kernel's table");
    for (auto& place : places_)
      check(driver().event_create(&place.done, kEventNoTiming), "creating an event");
  }

  Handle context() const { return context_; }

  void launch(const Launch& launch, Handle stream) {
    const unsigned number = next_++ % kLaunches;
    Place& place = places_[number];
    // The last kernel that used the place may not have read it yet; on the same stream it has.
    if (place.used && place.stream != stream)
      check(driver().stream_wait(stream, place.done, 0), "ordering the digest's kernels");
    check(driver().copy_to_device(launches_ + number * sizeof(Launch), &launch, bytes_of(launch),
                                  stream),
          "copying the tensor list to the GPU");
    unsigned argument = number;
    void* arguments[] = {&argument};
    constexpr unsigned kUnits = kThreads / kLanes;
    check(driver().launch(kernel_, (launch.units + kUnits - 1) / kUnits, 1, 1, kThreads, 1, 1, 0,
                          stream, arguments, nullptr),
          "launching the digest's kernel");
    check(driver().event_record(place.done, stream), "recording an event");
    place.used = true;
    place.stream = stream;
  }

  // The memory of a finished batch: the GPU may still write to it, until `done`.
  struct Left {
    PinnedMemory::Range memory;
    Handle done = nullptr;
  };
  void leave(const Left& left) { left_.push_back(left); }
  void take_back() {
    std::erase_if(left_, [this](const Left& left) {
      if (driver().event_query(left.done) == kNotReady) return false;
      memory.give_back(left.memory);
      driver().event_destroy(left.done);
      return true;
    });
  }

  std::mutex mutex;
  PinnedMemory memory;

 private:
  struct Place {
    Handle done = nullptr;
    Handle stream = nullptr;
    bool used = false;
  };

  Handle context_ = nullptr;
  Handle kernel_ = nullptr;
  DevicePointer launches_ = 0;
  std::array<Place, kLaunches> places_;
  unsigned next_ = 0;
  std::vector<Left> left_;
};

// Never destroyed: at the end of the process the driver is unloaded first.
inline Gpu& gpu(int ordinal) {
  static std::mutex mutex;
  static auto* gpus = new std::map<int, std::unique_ptr<Gpu>>;
  const std::lock_guard lock(mutex);
  auto& found = (*gpus)[ordinal];
  if (found == nullptr) found = std::make_unique<Gpu>(ordinal);
  return *found;
}

}  // namespace ddp_doctor::cuda

struct ddpc_batch {
  ddpc_batch(Gpu& of, Handle stream, std::span<const DeviceTensor> tensors, bool copy)
      : gpu_(of), plan_(tensors, copy) {
    const std::lock_guard lock(gpu_.mutex);
    const Within within(gpu_.context());
    int capturing = 0;
    check(driver().stream_capturing(stream, &capturing), "querying the stream");
    if (capturing != 0)
      throw Error("the stream is being captured into a CUDA graph: no kernel may be added");
    check(driver().event_create(&done_, kEventNoTiming | kEventBlockingSync), "creating an event");
    // The results, followed by the input for the GPU.
    gpu_.take_back();
    memory_ = gpu_.memory.take(plan_.bytes() + plan_.bytes_of_launches());
    std::byte* at = memory_.data + plan_.bytes();
    for (std::size_t i = 0; i < plan_.launches(); ++i) {
      auto* launch = reinterpret_cast<Launch*>(at);
      plan_.write_launch(i, memory_.data, *launch);
      gpu_.launch(*launch, stream);
      at += bytes_of(*launch);
    }
    check(driver().event_record(done_, stream), "recording an event");
  }

  ~ddpc_batch() {
    const std::lock_guard lock(gpu_.mutex);
    gpu_.leave({memory_, done_});
  }

  ddpc_batch(const ddpc_batch&) = delete;
  ddpc_batch& operator=(const ddpc_batch&) = delete;

  void wait() {
    const Within within(gpu_.context());
    check(driver().event_wait(done_), "waiting for the digests");
    is_ready_ = true;
  }

  DeviceDigest result(std::int64_t tensor) const {
    if (!is_ready_) throw Error("the digests are not ready yet: call ddpc_wait() first");
    return plan_.result(static_cast<std::size_t>(tensor), memory_.data);
  }

 private:
  Gpu& gpu_;
  Plan plan_;
  Handle done_ = nullptr;
  PinnedMemory::Range memory_;
  bool is_ready_ = false;
};

const char* ddpc_error(void) { return last_error.c_str(); }

ddpc_batch* ddpc_begin(int device, void* stream, int64_t count, const ddpc_tensor* tensors,
                       int copy) {
  ddpc_batch* batch = nullptr;
  guarded([&] {
    std::vector<DeviceTensor> list;
    for (std::int64_t i = 0; i < count; ++i)
      list.push_back({tensors[i].data, static_cast<DType>(tensors[i].dtype), tensors[i].numel});
    batch = new ddpc_batch(gpu(device), stream, list, copy != 0);
  });
  return batch;
}

int ddpc_wait(ddpc_batch* batch) {
  return guarded([&] { batch->wait(); }) ? 0 : -1;
}

int ddpc_result(const ddpc_batch* batch, int64_t tensor, ddpc_digest* result) {
  return guarded([&] {
    const DeviceDigest seen = batch->result(tensor);
    std::copy(seen.digest.bits.begin(), seen.digest.bits.end(), result->bits);
    result->l2_norm = seen.digest.l2_norm;
    result->max_abs = seen.digest.max_abs;
    result->nonfinite = seen.digest.nonfinite;
    result->numel = seen.digest.numel;
    result->sample_count = static_cast<std::int32_t>(seen.samples.size());
    std::copy(seen.samples.begin(), seen.samples.end(), result->samples);
    result->copy = seen.copy.empty() ? nullptr : seen.copy.data();
    result->copy_bytes = static_cast<std::int64_t>(seen.copy.size());
  })
             ? 0
             : -1;
}

void ddpc_end(ddpc_batch* batch) { delete batch; }
