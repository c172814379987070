// SPDX-License-Identifier: BSD-3-Clause
// The output of a program: read from a pipe, passed on to the user, and kept.
//
// Reading never waits and never stops, so no program blocks on a full pipe.
#pragma once

#include <chrono>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <string>
#include <vector>

namespace ddp_doctor {

// The user's terminal, or wherever stderr goes. Several programs write to it, line by line.
class Audience {
 public:
  explicit Audience(std::ostream* out) : out_(out) {}

  // `text` begins where the last piece of `who` ended. A line that someone else left open is ended
  // first. `prefix` goes before each line.
  void hear(const void* who, const std::string& prefix, std::string_view text);
  // Ends the line that is open, if one is.
  void end_line();
  explicit operator bool() const { return out_ != nullptr; }

 private:
  std::ostream* out_;
  const void* open_line_of_ = nullptr;  // who wrote last, and ended with no newline
  bool overwriting_ = false;            // but with a carriage return
};

class Relay {
 public:
  // Keeps the beginning and the end of it all in the file `log`. Throws Error if there is no pipe.
  Relay(Audience& audience, std::string prefix, const std::filesystem::path& log);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  // For the program, as its stdout and stderr; closed here by release_writer() once it runs.
  int writer() const { return writer_; }
  void release_writer();
  // To be polled; -1 when everyone has closed the other end.
  int reader() const { return reader_; }

  // Takes what is there, a bounded amount of it. False if nothing was.
  bool take();
  // Passes on a line that has been incomplete for a while (a progress bar, a prompt).
  void pass_on_late(std::chrono::steady_clock::time_point now);
  // Passes on and writes down what is left.
  void finish();

  // The end of all that was written.
  std::string last_words() const;

 private:
  void keep(std::string_view text);

  Audience& audience_;
  std::string prefix_;
  int reader_ = -1;
  int writer_ = -1;
  std::vector<char> buffer_;
  std::string line_;  // read, and not yet passed on
  std::chrono::steady_clock::time_point line_began_;
  std::ofstream log_;
  std::size_t logged_ = 0;
  std::string tail_;  // the last of it, for the log's end and for last_words()
  std::size_t left_out_ = 0;
  bool finished_ = false;
};

}  // namespace ddp_doctor
