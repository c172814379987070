// SPDX-License-Identifier: BSD-3-Clause
#include "tool/launch/relay.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lib/error.h"

namespace ddp_doctor {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kMiB = 1024 * 1024;
constexpr std::size_t kLogged = kMiB;  // of the beginning, and as much of the end
constexpr std::size_t kLongLine = 64 * 1024;
constexpr auto kLate = milliseconds(200);
constexpr std::size_t kAtATime = 256 * 1024;

// Where the last complete line of `text` ends. A carriage return ends a line, too (progress bars),
// unless a newline follows it or may yet follow.
std::size_t end_of_lines(std::string_view text) {
  for (std::size_t i = text.size(); i > 0; --i) {
    if (text[i - 1] == '\n' || (text[i - 1] == '\r' && i < text.size())) return i;
  }
  return 0;
}

}  // namespace

void Audience::hear(const void* who, const std::string& prefix, std::string_view text) {
  if (out_ == nullptr || text.empty()) return;
  std::string words;
  if (open_line_of_ != nullptr && open_line_of_ != who) words += '\n';
  bool begins = open_line_of_ != who || overwriting_;
  while (!text.empty()) {
    if (begins) words += prefix;
    std::size_t end = text.find_first_of("\r\n");
    if (end != std::string_view::npos && text.substr(end).starts_with("\r\n")) ++end;
    begins = end != std::string_view::npos;
    const std::size_t size = begins ? end + 1 : text.size();
    words += text.substr(0, size);
    text.remove_prefix(size);
  }
  open_line_of_ = words.back() == '\n' ? nullptr : who;
  overwriting_ = words.back() == '\r';
  *out_ << words << std::flush;
}

void Audience::end_line() {
  if (out_ != nullptr && open_line_of_ != nullptr) *out_ << '\n' << std::flush;
  open_line_of_ = nullptr;
}

Relay::Relay(Audience& audience, std::string prefix, const std::filesystem::path& log)
    : audience_(audience), prefix_(std::move(prefix)), buffer_(kAtATime), log_(log) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    throw Error(fmt::format("cannot create a pipe: {}; raise the limit of open files (ulimit -n)",
                            std::strerror(errno)));
  }
  reader_ = ends[0];
  writer_ = ends[1];
  fcntl(reader_, F_SETFL, O_NONBLOCK);
  fcntl(writer_, F_SETPIPE_SZ, static_cast<int>(kMiB));  // fewer turns where it is granted
}

Relay::~Relay() {
  finish();
  release_writer();
  if (reader_ >= 0) close(reader_);
}

void Relay::release_writer() {
  if (writer_ >= 0) close(writer_);
  writer_ = -1;
}

bool Relay::take() {
  if (reader_ < 0) return false;
  const ssize_t got = read(reader_, buffer_.data(), buffer_.size());
  if (got == 0) {
    close(reader_);
    reader_ = -1;
  }
  if (got <= 0) return false;
  const std::string_view text(buffer_.data(), static_cast<std::size_t>(got));
  keep(text);
  if (!audience_) return true;
  if (line_.empty()) line_began_ = std::chrono::steady_clock::now();
  line_ += text;
  std::size_t ready = end_of_lines(line_);
  if (line_.size() - ready > kLongLine) ready = line_.size();
  if (ready > 0) {
    audience_.hear(this, prefix_, std::string_view(line_).substr(0, ready));
    line_.erase(0, ready);
    line_began_ = std::chrono::steady_clock::now();
  }
  return true;
}

void Relay::pass_on_late(std::chrono::steady_clock::time_point now) {
  if (line_.empty() || now - line_began_ < kLate) return;
  audience_.hear(this, prefix_, line_);
  line_.clear();
}

void Relay::keep(std::string_view text) {
  if (logged_ < kLogged) {
    const auto part = text.substr(0, kLogged - logged_);
    log_ << part << std::flush;
    logged_ += part.size();
    // last_words() wants it too, so the beginning of the tail overlaps; finish() knows.
  }
  tail_ += text;
  if (tail_.size() > 2 * kLogged) {
    left_out_ += tail_.size() - kLogged;
    tail_.erase(0, tail_.size() - kLogged);
  }
}

void Relay::finish() {
  if (finished_) return;
  finished_ = true;
  audience_.hear(this, prefix_, line_);
  line_.clear();
  // What the log has already is the first `logged_` bytes; the tail begins at `left_out_`.
  if (tail_.size() > kLogged) {
    left_out_ += tail_.size() - kLogged;
    tail_.erase(0, tail_.size() - kLogged);
  }
  if (left_out_ > logged_) {
    log_ << fmt::format("\n[... {} bytes omitted here ...]\n", left_out_ - logged_) << tail_;
  } else {
    log_ << std::string_view(tail_).substr(logged_ - left_out_);
  }
  log_.flush();
}

std::string Relay::last_words() const {
  constexpr std::size_t kSearched = 64 * 1024;
  std::string text = tail_.size() > kSearched ? tail_.substr(tail_.size() - kSearched) : tail_;
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return text;
}

}  // namespace ddp_doctor
