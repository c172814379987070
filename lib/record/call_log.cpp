// SPDX-License-Identifier: BSD-3-Clause
#include "lib/record/call_log.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "lib/record/plausible.h"

namespace ddp_doctor {
namespace {

constexpr std::array<char, 8> kCallLogMagic = {'D', 'D', 'P', 'd', 'c', 'a', 'l', '2'};

struct Header {
  std::array<char, 8> magic;
  std::int64_t count;  // entries begun so far
};

struct Entry {
  std::int64_t number;  // 0 while it is being written
  std::int64_t position;
  std::int64_t step;
  std::int64_t begin_ns;
  std::int64_t end_ns;
  std::int64_t numel;
  std::int32_t line;
  std::array<char, 28> op;
  std::array<char, 16> reduce;
  std::array<char, 16> dtype;
  std::array<char, 256> group;
  std::array<char, 16> moment;
  std::array<char, 96> target;
  std::array<char, 120> file;
};

struct LogLayout {
  Header header;
  std::array<Entry, CallLog::kCapacity> entries;
};

Entry& entry_of(LogLayout& log, std::int64_t number) {
  return log.entries[static_cast<std::size_t>((number - 1) % CallLog::kCapacity)];
}

std::int64_t now() {
  const std::chrono::nanoseconds time = std::chrono::steady_clock::now().time_since_epoch();
  return time.count();
}

template <std::size_t n>
void put(std::array<char, n>& to, const std::string& text) {
  const std::size_t length = std::min(text.size(), n - 1);
  std::copy_n(text.begin(), length, to.begin());
  std::fill(to.begin() + static_cast<std::ptrdiff_t>(length), to.end(), '\0');
}

// Paths are truncated at the start, since their ends differ.
template <std::size_t n>
void put_end(std::array<char, n>& to, const std::string& text) {
  put(to, text.size() < n ? text : text.substr(text.size() - (n - 1)));
}

template <std::size_t n>
std::string text_of(const std::array<char, n>& from) {
  return {from.data(), ::strnlen(from.data(), n)};
}

LoggedCall call_of(const Entry& e) {
  return {e.number,
          e.position,
          e.step,
          plausible_time(e.begin_ns),
          plausible_time(e.end_ns),
          plausible_elements(e.numel),
          e.line,
          text_of(e.op),
          text_of(e.reduce),
          text_of(e.dtype),
          text_of(e.group),
          text_of(e.moment),
          text_of(e.target),
          text_of(e.file)};
}

}  // namespace

CallLog::CallLog(const std::filesystem::path& file) : map_(file, sizeof(LogLayout)) {
  static_cast<LogLayout*>(map_.data())->header.magic = kCallLogMagic;
}

std::int64_t CallLog::begin(const LoggedCall& call) noexcept {
  LogLayout& log = *static_cast<LogLayout*>(map_.data());
  const std::int64_t number = log.header.count + 1;
  Entry& entry = entry_of(log, number);
  store(entry.number, std::int64_t{0});
  entry.position = call.position;
  entry.step = call.step;
  entry.begin_ns = now();
  entry.end_ns = 0;
  entry.numel = call.numel;
  entry.line = call.line;
  put(entry.op, call.op);
  put(entry.reduce, call.reduce);
  put(entry.dtype, call.dtype);
  put(entry.group, call.group);
  put(entry.moment, call.moment);
  put(entry.target, call.target);
  put_end(entry.file, call.file);
  store(entry.number, number);
  store(log.header.count, number);
  return number;
}

void CallLog::end(std::int64_t number) noexcept {
  Entry& entry = entry_of(*static_cast<LogLayout*>(map_.data()), number);
  if (entry.number == number) store(entry.end_ns, now());
}

void CallLog::resume(std::int64_t number) noexcept {
  Entry& entry = entry_of(*static_cast<LogLayout*>(map_.data()), number);
  if (entry.number == number) store(entry.end_ns, std::int64_t{0});
}

const LoggedCall* waits_in(const std::vector<LoggedCall>& calls) {
  if (calls.empty()) return nullptr;
  const LoggedCall& last = calls.back();
  if (last.end_ns == 0 && (last.position > 0 || !last.op.starts_with("ddp.forward"))) return &last;
  // An asynchronous call, with others issued after it. A wrapper's call that raised never ends.
  for (const LoggedCall& call : calls) {
    if (call.end_ns == 0 && !call.op.starts_with("ddp.")) return &call;
  }
  return nullptr;
}

std::vector<LoggedCall> read_calls(const std::filesystem::path& file) {
  std::vector<LoggedCall> calls;
  std::vector<LogLayout> log(1);
  if (!read_bytes(file, log.data(), sizeof(LogLayout)) || log[0].header.magic != kCallLogMagic)
    return calls;
  for (const auto& entry : log[0].entries) {
    if (entry.number > 0) calls.push_back(call_of(entry));
  }
  std::sort(calls.begin(), calls.end(),
            [](const LoggedCall& a, const LoggedCall& b) { return a.number < b.number; });
  return calls;
}

}  // namespace ddp_doctor
