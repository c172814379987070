// SPDX-License-Identifier: BSD-3-Clause
#include "lib/record/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "lib/error.h"

namespace ddp_doctor {
namespace {

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
              (full ? ": free some disk space, or choose another folder with --out DIR"
                    : ": choose a writable folder with --out DIR"));
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& file, std::size_t bytes) : bytes_(bytes) {
  const File out(file, O_RDWR | O_CREAT | O_TRUNC);
  if (!out) fail(file, errno);
  // A store to a page for which the disk has no room kills the process by SIGBUS, so the room is
  // taken before there is a map.
  if (const int code = ::posix_fallocate(out.get(), 0, static_cast<off_t>(bytes)); code != 0)
    fail(file, code);
  data_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, out.get(), 0);
  if (data_ == MAP_FAILED) fail(file, errno);
}

MappedFile::~MappedFile() { ::munmap(data_, bytes_); }

bool read_bytes(const std::filesystem::path& file, void* to, std::size_t bytes,
                std::size_t offset) noexcept {
  const File in(file, O_RDONLY | O_NONBLOCK);
  return in &&
         ::pread(in.get(), to, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
}

bool write_bytes(const std::filesystem::path& file, const void* from, std::size_t bytes,
                 std::size_t offset) noexcept {
  const File out(file, O_WRONLY);
  return out && ::pwrite(out.get(), from, bytes, static_cast<off_t>(offset)) ==
                    static_cast<ssize_t>(bytes);
}

}  // namespace ddp_doctor
