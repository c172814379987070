// SPDX-License-Identifier: BSD-3-Clause
// A small memory-mapped file that one process writes without system calls and others read. Its
// content survives the writer, however that ends.
#pragma once

#include <atomic>
#include <cstddef>
#include <filesystem>

namespace ddp_doctor {

class MappedFile {
 public:
  // Creates or truncates `file`, all zeros; throws Error if that is impossible, a full disk
  // included.
  MappedFile(const std::filesystem::path& file, std::size_t bytes);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  void* data() const { return data_; }

 private:
  std::size_t bytes_;
  void* data_;
};

// Reads `bytes` from `offset`; false if there are not so many. Read, not mapped: a map would kill
// the reader by SIGBUS if the file shrank under it.
bool read_bytes(const std::filesystem::path& file, void* to, std::size_t bytes,
                std::size_t offset = 0) noexcept;
// Overwrites a part of an existing file.
bool write_bytes(const std::filesystem::path& file, const void* from, std::size_t bytes,
                 std::size_t offset) noexcept;

template <class T>
void store(T& word, T value) noexcept {
  std::atomic_ref<T>(word).store(value, std::memory_order_relaxed);
}

// A reader that sees this word also sees everything stored before it.
template <class T>
void store_last(T& word, T value) noexcept {
  std::atomic_ref<T>(word).store(value, std::memory_order_release);
}

template <class T>
T load(T& word) noexcept {
  return std::atomic_ref<T>(word).load(std::memory_order_relaxed);
}

}  // namespace ddp_doctor
