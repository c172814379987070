// SPDX-License-Identifier: BSD-3-Clause
// The system's table of processes, as /proc shows it.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ddp_doctor {

// Empty where it cannot be opened or read: a file of /proc that was opened gives an error once its
// process has ended.
std::string content_if_readable(const std::string& file);

struct ProcessState {
  pid_t parent = 0;
  bool ended = false;              // a zombie: its status has not been read yet
  int status = 0;                  // then: as waitpid() gives it; 0 where the system hides it
  unsigned long long started = 0;  // in clock ticks since boot; tells a pid from its next owner
};

// Nothing if there is no such process.
std::optional<ProcessState> look_at_process(pid_t pid);

// What its threads do, all of them together.
struct ProcessActivity {
  bool runs = false;              // one runs, or would if the processor were free
  bool sleeps = false;            // all others wait for something: none reads a disk or is stopped
  bool rests = false;             // all others wait for something, or were stopped by a signal
  bool traced = false;            // a debugger holds one
  long long processor_ticks = 0;  // used so far
  long long bytes = 0;            // read and written so far, but for what sockets receive and send
};

// Nothing if there is no such process.
std::optional<ProcessActivity> activity_of(pid_t pid);

// Whether the process has that file in its memory.
bool has_mapped(pid_t pid, const std::filesystem::path& file);

// Children of `root`, their children, and so on, without `root`.
std::vector<pid_t> descendants_of(pid_t root);

// Processes of this user that were started with `setting` ("NAME=value") in their environment, or
// forked from one that was.
std::vector<pid_t> processes_with(const std::string& setting);

// The end of a process that is no child of ours, and whose status its parent takes.
class EndWatch {
 public:
  explicit EndWatch(pid_t pid);
  ~EndWatch();
  EndWatch(EndWatch&& other) noexcept;
  EndWatch& operator=(EndWatch&&) = delete;

  // False once it has ended. To be asked often: Linux before 6.15 shows the status only between
  // the end and the moment when the parent takes it.
  bool running();
  // As waitpid() gives it; nothing where the parent was quicker.
  std::optional<int> status() const { return status_; }

 private:
  pid_t pid_;
  int descriptor_;
  unsigned long long started_ = 0;
  bool running_ = true;
  std::optional<int> status_;
};

}  // namespace ddp_doctor
