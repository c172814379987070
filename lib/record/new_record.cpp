// SPDX-License-Identifier: BSD-3-Clause
#include "lib/record/new_record.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "lib/error.h"
#include "lib/record/schema.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& file, const std::string& reason, const char* action) {
  throw Error("cannot write " + file.string() + ": " + reason + ": " + action);
}

constexpr const char* kFreeSpace = "free some disk space, or choose another folder with --out DIR";
constexpr const char* kElsewhere = "choose a writable folder with --out DIR";

}  // namespace

void refuse_to_write(const fs::path& file, const SqliteError& error) {
  const int code = error.primary_code();
  const std::string reason = error.what();
  if (code == SQLITE_FULL) fail(file, "the disk is full", kFreeSpace);
  if (code == SQLITE_IOERR) fail(file, reason, kFreeSpace);
  if (code == SQLITE_CANTOPEN || code == SQLITE_READONLY || code == SQLITE_PERM) {
    fail(file, reason, kElsewhere);
  }
  if (code == SQLITE_CONSTRAINT) {
    fail(file, reason + ", the record already has this entry",
         "write each step, tensor and observation once");
  }
  if (code == SQLITE_TOOBIG) fail(file, reason, "keep fewer values with a smaller value budget");
  fail(file, reason, "is another program changing this file? Choose another folder with --out DIR");
}

namespace {

void create_folder(const fs::path& folder) {
  if (folder.empty() || fs::is_directory(folder)) return;
  create_folder(folder.parent_path());
  if (::mkdir(folder.c_str(), 0700) == 0) return;
  const int code = errno;
  if (code == EEXIST && fs::is_directory(folder)) return;  // another rank was faster
  throw Error(
      "cannot create the folder " + folder.string() + ": " +
      (code == EEXIST ? "a file with this name exists" : std::generic_category().message(code)) +
      ": " + (code == ENOSPC || code == EDQUOT ? kFreeSpace : kElsewhere));
}

[[noreturn]] void refuse_existing(const fs::path& file) {
  fail(file, "it already exists", "remove it, or write to a new folder with --out DIR");
}

// Names `from` as `to`, which must not exist.
void publish(const fs::path& from, const fs::path& to) {
  if (::link(from.c_str(), to.c_str()) == 0) {
    ::unlink(from.c_str());
    return;
  }
  if (errno == EEXIST) refuse_existing(to);
  // A file system without hard links: no longer atomic against a second writer of this rank.
  if (fs::exists(to)) refuse_existing(to);
  if (::rename(from.c_str(), to.c_str()) != 0) {
    fail(to, std::generic_category().message(errno), kElsewhere);
  }
}

void write_header(Connection& connection, const RecordHeader& header) {
  connection.run("PRAGMA synchronous = OFF");
  connection.run("PRAGMA application_id = " + std::to_string(kApplicationId));
  connection.run("PRAGMA user_version = " + std::to_string(kSchemaVersion));
  Transaction transaction(connection, "IMMEDIATE");
  connection.run(kSchema);
  Statement(connection, "INSERT INTO header VALUES (?, ?, ?, ?)")
      .run(header.rank, header.world_size, header.probe, header.program);
  Statement detail(connection, "INSERT INTO detail VALUES (?, ?)");
  for (const auto& [key, value] : header.details) detail.run(key, value);
  transaction.commit();
  connection.run("PRAGMA journal_mode = WAL");
}

// Removes what is left of a record that could not be finished.
class Draft {
 public:
  explicit Draft(fs::path name) : name_(std::move(name)) { remove(); }
  ~Draft() { remove(); }
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;
  const fs::path& name() const { return name_; }

 private:
  void remove() const {
    for (const char* suffix : {"", "-journal", "-wal", "-shm"}) {
      ::unlink((name_.string() + suffix).c_str());
    }
  }

  fs::path name_;
};

}  // namespace

Connection create_record(const fs::path& folder, const fs::path& file, const RecordHeader& header) {
  create_folder(folder);
  if (fs::exists(fs::symlink_status(file))) refuse_existing(file);
  const Draft draft(file.string() + ".new-" + std::to_string(::getpid()));
  try {
    {
      Connection connection(draft.name(), SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
      write_header(connection, header);
    }
    publish(draft.name(), file);
    return Connection(file, SQLITE_OPEN_READWRITE);
  } catch (const SqliteError& error) {
    refuse_to_write(file, error);
  }
}

}  // namespace ddp_doctor
