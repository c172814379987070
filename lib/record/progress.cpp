#include "lib/record/progress.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <new>
#include <system_error>

#include "lib/error.h"

namespace ddp_doctor {
namespace {

constexpr std::array<char, 8> kMagic = {'D', 'D', 'P', 'd', 'p', 'r', 'g', '2'};

// The file's content, in the byte order of the machine, on which alone changed_ns has a meaning.
struct Layout {
  std::array<char, 8> magic;
  std::uint32_t phase;
  std::uint32_t unused;
  std::int64_t step;
  std::int64_t changed_ns;
  std::int64_t wanted_step;  // the watcher's only
};

class File {
 public:
  File(const std::filesystem::path& name, int flags)
      : descriptor_(::open(name.c_str(), flags | O_CLOEXEC, 0600)) {}
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int get() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }

 private:
  int descriptor_;
};

[[noreturn]] void fail(const std::filesystem::path& file, int code) {
  const bool full = code == ENOSPC || code == EDQUOT || code == EFBIG;
  throw Error("cannot create " + file.string() + ": " + std::generic_category().message(code) +
              (full ? ": free space there, or write elsewhere with --out DIR"
                    : ": choose a folder that can be written with --out DIR"));
}

template <class T>
void store(T& word, T value) noexcept {
  std::atomic_ref<T>(word).store(value, std::memory_order_relaxed);
}

template <class T>
T load(T& word) noexcept {
  return std::atomic_ref<T>(word).load(std::memory_order_relaxed);
}

}  // namespace

struct ProgressWriter::Map : Layout {};

const char* name_of(Phase phase) {
  switch (phase) {
    case Phase::kStarting:
      return "starting";
    case Phase::kConnecting:
      return "connecting";
    case Phase::kBatch:
      return "batch";
    case Phase::kForward:
      return "forward";
    case Phase::kBackward:
      return "backward";
    case Phase::kCollective:
      return "collective";
    case Phase::kOptimizer:
      return "optimizer";
    case Phase::kRecording:
      return "recording";
    case Phase::kFinished:
      return "finished";
  }
  return "unknown";
}

ProgressWriter::ProgressWriter(const std::filesystem::path& file) {
  const File out(file, O_RDWR | O_CREAT | O_TRUNC);
  if (!out) fail(file, errno);
  // A store to a page for which the disk has no room kills the process by SIGBUS, so the room is
  // taken before there is a map.
  if (const int code = ::posix_fallocate(out.get(), 0, sizeof(Map)); code != 0) fail(file, code);
  void* map = ::mmap(nullptr, sizeof(Map), PROT_READ | PROT_WRITE, MAP_SHARED, out.get(), 0);
  if (map == MAP_FAILED) fail(file, errno);
  map_ = new (map) Map{{kMagic, 0, 0, 0, 0, 0}};
}

ProgressWriter::~ProgressWriter() { ::munmap(map_, sizeof(Map)); }

void ProgressWriter::enter(Phase phase, std::int64_t step) noexcept {
  using std::chrono::steady_clock;  // CLOCK_MONOTONIC, which Linux reads without a system call
  const std::chrono::nanoseconds now = steady_clock::now().time_since_epoch();
  store(map_->phase, static_cast<std::uint32_t>(phase));
  store(map_->step, step);
  store(map_->changed_ns, static_cast<std::int64_t>(now.count()));
}

std::int64_t ProgressWriter::wanted_step() const noexcept { return load(map_->wanted_step); }

Phase ProgressWriter::phase() const noexcept { return static_cast<Phase>(load(map_->phase)); }

std::int64_t ProgressWriter::step() const noexcept { return load(map_->step); }

// Read, not mapped: a map would kill the watcher by SIGBUS if the file shrank under it.
Progress read_progress(const std::filesystem::path& file) noexcept {
  Layout map;
  const File in(file, O_RDONLY | O_NONBLOCK);
  if (!in || ::pread(in.get(), &map, sizeof map, 0) != sizeof map) return {};
  if (map.magic != kMagic || map.phase > static_cast<std::uint32_t>(Phase::kFinished)) return {};
  return {static_cast<Phase>(map.phase), map.step, map.changed_ns};
}

bool ask_for_values(const std::filesystem::path& file, std::int64_t step) noexcept {
  const File map(file, O_WRONLY);
  return map &&
         ::pwrite(map.get(), &step, sizeof step, offsetof(Layout, wanted_step)) == sizeof step;
}

}  // namespace ddp_doctor
