// SPDX-License-Identifier: BSD-3-Clause
// Transactions, in SQLite's write-ahead log. synchronous=OFF leaves it to the kernel when pages
// reach the disk: the death of a process loses nothing that was committed, the death of the machine
// may.

#include "lib/record/writer.h"

#include <unistd.h>

#include <cstdio>
#include <map>
#include <unordered_map>

#include "lib/error.h"
#include "lib/record/new_record.h"
#include "lib/record/packed.h"
#include "lib/record/statement.h"
#include "lib/record/waiting_steps.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;

std::string rank_name(int rank, const char* suffix) {
  char name[64];
  std::snprintf(name, sizeof name, "rank-%05d.%s", rank, suffix);
  return name;
}

}  // namespace

fs::path record_file(const fs::path& folder, int rank) {
  return folder / rank_name(rank, "sqlite");
}

fs::path progress_file(const fs::path& folder, int rank) {
  return folder / rank_name(rank, "progress");
}

fs::path calls_file(const fs::path& folder, int rank) { return folder / rank_name(rank, "calls"); }

fs::path steps_file(const fs::path& folder, int rank) { return folder / rank_name(rank, "steps"); }

fs::path stack_file(const fs::path& folder, int rank) { return folder / rank_name(rank, "stack"); }

fs::path native_stack_file(const fs::path& folder, int rank) {
  return folder / rank_name(rank, "native-stack");
}

namespace {

constexpr std::int64_t kRememberedExaminations = 3;  // of several optimizers, say

}  // namespace

// The statements are prepared once: a step of a large model runs some of them thousands of times.
struct RecordWriter::Database {
  Database(const fs::path& folder, const RecordHeader& header, std::int64_t most_bytes)
      : file(record_file(folder, header.rank)),
        connection(create_record(folder, file, header)),
        waiting_file(steps_file(folder, header.rank)),
        waiting(waiting_file),
        thinning(most_bytes) {}

  void prepare();
  void insert(const StepRecord& step, const std::vector<PackedRow>& rows);
  void insert_waiting();
  void thin(const StepRecord& step, const std::vector<PackedRow>& rows, const Watched& watched);
  void forget(std::int64_t step);
  bool is_unusual(const std::vector<PackedRow>& rows);

  // Runs `work` as one transaction.
  template <class Work>
  void transact(const Work& work) {
    try {
      Transaction transaction(connection, "IMMEDIATE");
      work();
      transaction.commit();
    } catch (const SqliteError& error) {
      // What is remembered of it may have been rolled back.
      lists.clear();
      contents.clear();
      contents_of.clear();
      refuse_to_write(file, error);
    }
  }

  std::int64_t id_of(const TensorList& list);
  std::int64_t id_of(const PackedRow& row);

  fs::path file;
  Connection connection;
  fs::path waiting_file;
  WaitingSteps waiting;
  pid_t owner = ::getpid();
  std::optional<Statement> tensor, step, tensor_list, content, seen, collective, kept_values,
      ddp_field, event, site, fact, unexamined, unseen, no_content, forgotten;

  // Content of the latest steps that is already stored: an unchanged gradient after its reduction,
  // or the same usage, is stored once.
  struct Content {
    std::int64_t id = 0;
    std::int64_t examination = 0;  // the last one that had it
  };
  std::vector<std::pair<TensorList, std::int64_t>> lists;
  std::map<std::pair<Seen, Root>, Content> contents;
  std::int64_t last_list = 0;
  std::int64_t examinations = 0;

  // Content to delete with a step: that no other step refers to.
  Thinning thinning;
  std::unordered_map<std::int64_t, std::vector<std::int64_t>> contents_of;  // by step
  std::unordered_map<std::int64_t, int> users_of;                           // by content
  std::optional<Root> last_usages;
};

void RecordWriter::Database::prepare() {
  try {
    // Waits this long for a lock, which a reader takes only to recover the log of a dead writer.
    sqlite3_busy_timeout(connection.get(), 2000);
    connection.run("PRAGMA synchronous = OFF");
    tensor.emplace(connection,
                   "INSERT OR REPLACE INTO tensor VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
    step.emplace(
        connection,
        "INSERT OR REPLACE INTO step VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
    tensor_list.emplace(connection, "INSERT INTO tensor_list VALUES (?, ?, ?, ?)");
    content.emplace(connection, "INSERT INTO content (bytes) VALUES (?)");
    seen.emplace(connection, "INSERT INTO seen VALUES (?, ?, ?, ?, ?, ?)");
    collective.emplace(
        connection,
        "INSERT OR REPLACE INTO collective VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
    site.emplace(connection,
                 "INSERT INTO site (what, step, file, line, via) VALUES (?, ?, ?, ?, ?)");
    fact.emplace(connection, "INSERT INTO fact (step, subject, key, value) VALUES (?, ?, ?, ?)");
    kept_values.emplace(connection, "INSERT INTO kept_values VALUES (?, ?, ?, ?)");
    ddp_field.emplace(connection,
                      "INSERT INTO ddp_field (moment, key, value, is_integer, wrapper) VALUES (?, "
                      "?, ?, ?, ?) ON CONFLICT (moment, key, wrapper) DO UPDATE SET value = "
                      "excluded.value, is_integer = excluded.is_integer");
    event.emplace(connection,
                  "INSERT INTO event (step, time_ns, kind, phase, text) VALUES (?, ?, ?, ?, ?)");
    unexamined.emplace(connection, "UPDATE step SET examined = 0 WHERE step = ?");
    unseen.emplace(connection, "DELETE FROM seen WHERE step = ?");
    no_content.emplace(connection, "DELETE FROM content WHERE id = ?");
    forgotten.emplace(connection, "INSERT OR REPLACE INTO detail VALUES ('thinned', ?)");
  } catch (const SqliteError& error) {
    refuse_to_write(file, error);
  }
}

// A program has a few sets of tensors that are seen together.
std::int64_t RecordWriter::Database::id_of(const TensorList& list) {
  for (const auto& [known, id] : lists) {
    if (known == list) return id;
  }
  const std::int64_t id = ++last_list;
  int position = 0;
  for (const auto& [tensor_id, numel] : list) tensor_list->run(id, position++, tensor_id, numel);
  lists.emplace_back(list, id);
  return id;
}

std::int64_t RecordWriter::Database::id_of(const PackedRow& row) {
  auto& known = contents[{row.slot.what, row.root}];
  if (known.id == 0) {
    content->run(row.bytes);
    known.id = sqlite3_last_insert_rowid(connection.get());
  }
  known.examination = examinations;
  return known.id;
}

void RecordWriter::Database::insert(const StepRecord& s, const std::vector<PackedRow>& rows) {
  step->run(s.step, s.loss, s.started_ns, s.duration_ns, s.probe_ns, s.backwards,
            s.unsynchronized_backwards, s.forwards_through_wrapper, s.forwards_around_wrapper,
            s.collectives, s.collective_bytes, s.optimizer, s.examined, s.skipped, s.scale,
            s.trace);
  if (!rows.empty()) ++examinations;
  std::erase_if(contents, [&](const auto& known) {
    return known.second.examination + kRememberedExaminations < examinations;
  });
  for (const PackedRow& row : rows) {
    const std::int64_t id = id_of(row);
    seen->run(s.step, static_cast<int>(row.slot.what), static_cast<int>(row.slot.stage),
              id_of(*row.list), row.root, id);
    contents_of[s.step].push_back(id);
    ++users_of[id];
  }
  int position = 0;
  for (const Collective& c : s.calls) {
    collective->run(s.step, position++, c.op, c.reduce, c.dtype, c.numel, c.group, c.moment,
                    c.target, c.file, c.line, c.count);
  }
  for (const KeptValues& v : s.values) {
    kept_values->run(s.step, v.tensor, static_cast<int>(v.stage), v.bytes);
  }
}

// A value is not finite, or the used parameters differ from those of the last examined step.
bool RecordWriter::Database::is_unusual(const std::vector<PackedRow>& rows) {
  bool unusual = false;
  for (const PackedRow& row : rows) {
    if (row.slot.what == Seen::kDigests) unusual = unusual || row.has_nonfinite();
    if (row.slot.what != Seen::kUsages) continue;
    unusual = unusual || (last_usages && *last_usages != row.root);
    last_usages = row.root;
  }
  return unusual;
}

void RecordWriter::Database::thin(const StepRecord& s, const std::vector<PackedRow>& rows,
                                  const Watched& watched) {
  if (rows.empty() || s.step < 1) return;
  std::int64_t bytes = 0;
  for (const PackedRow& row : rows) bytes += static_cast<std::int64_t>(row.bytes.size());
  thinning.add(s.step, bytes, is_unusual(rows));
  const std::int64_t before = thinning.forgotten();
  while (const auto old = thinning.next(watched)) forget(*old);
  if (thinning.forgotten() > before) forgotten->run(std::to_string(thinning.forgotten()));
}

void RecordWriter::Database::forget(std::int64_t old) {
  const auto known = contents_of.find(old);
  if (known == contents_of.end()) return;  // of before a transaction that failed
  unexamined->run(old);
  unseen->run(old);
  for (const std::int64_t id : known->second) {
    const auto users = users_of.find(id);
    if (--users->second > 0) continue;
    no_content->run(id);
    users_of.erase(users);
    std::erase_if(contents, [&](const auto& content_of) { return content_of.second.id == id; });
  }
  contents_of.erase(known);
}

void RecordWriter::Database::insert_waiting() {
  for (const StepRecord& waiting_step : waiting.steps()) insert(waiting_step, {});
}

namespace {

std::string json_of(const std::vector<std::int64_t>& sizes) {
  std::string json = "[";
  for (const std::int64_t size : sizes) {
    if (json.size() > 1) json += ',';
    json += std::to_string(size);
  }
  return json + "]";
}

}  // namespace

RecordWriter::RecordWriter(const fs::path& folder, const RecordHeader& header,
                           std::int64_t most_bytes)
    : database_(std::make_unique<Database>(folder, header, most_bytes)) {
  database_->prepare();
}

RecordWriter::~RecordWriter() {
  try {
    close();
  } catch (const std::exception&) {  // what is committed stays readable
  }
}

RecordWriter::Database& RecordWriter::open() {
  if (!database_) {
    throw Error("the record is already closed: write to it before close()");
  }
  if (database_->owner != ::getpid()) {
    throw Error(database_->file.string() + " was opened by process " +
                std::to_string(database_->owner) + ", and this is " + std::to_string(::getpid()) +
                ", a fork of it: record in the process that trains");
  }
  return *database_;
}

void RecordWriter::write_tensors(const std::vector<TensorInfo>& tensors) {
  Database& database = open();
  database.transact([&] {
    for (const TensorInfo& t : tensors) {
      database.tensor->run(t.id, t.name, t.kind, t.dtype, json_of(t.sizes), t.numel, t.trainable,
                           t.ddp_index, t.module, t.wrapper);
    }
  });
}

void RecordWriter::write_step(const StepRecord& step, const Watched& watched) {
  Database& database = open();
  if (database.waiting.add(step)) return;
  std::vector<PackedRow> rows;
  try {
    rows = pack(step);
  } catch (const Error& error) {
    throw Error("cannot write " + database.file.string() + ": " + error.what());
  }
  database.transact([&] {
    database.insert_waiting();
    database.insert(step, rows);
    database.thin(step, rows, watched);
  });
  database.waiting.clear();
}

void RecordWriter::write_ddp_fields(const std::vector<DdpField>& fields) {
  Database& database = open();
  database.transact([&] {
    for (const DdpField& f : fields) {
      database.ddp_field->run(f.moment, f.key, f.value, f.is_integer, f.wrapper);
    }
  });
}

void RecordWriter::write_event(const Event& event) {
  Database& database = open();
  database.transact(
      [&] { database.event->run(event.step, event.time_ns, event.kind, event.phase, event.text); });
}

void RecordWriter::write_site(const Site& site) {
  Database& database = open();
  std::string via;
  for (const auto& place : site.via) via += (via.empty() ? "" : "\n") + place;
  database.transact([&] { database.site->run(site.what, site.step, site.file, site.line, via); });
}

void RecordWriter::write_fact(const Fact& fact) {
  Database& database = open();
  database.transact([&] { database.fact->run(fact.step, fact.subject, fact.key, fact.value); });
}

void RecordWriter::close() {
  if (!database_) return;
  if (database_->owner != ::getpid()) {
    // A forked child: closing would roll back or checkpoint what the parent is still writing.
    static_cast<void>(database_.release());
    return;
  }
  const std::unique_ptr<Database> database = std::move(database_);
  try {
    Transaction transaction(database->connection, "IMMEDIATE");
    database->insert_waiting();
    transaction.commit();
    ::unlink(database->waiting_file.c_str());
  } catch (const SqliteError&) {  // they stay where they are
  }
  try {
    // Moves the log into the file and removes it, so that the record is one file that can be copied
    // and read from a read-only medium. If a reader is active or the disk is full, the log stays;
    // the record is still readable.
    sqlite3_busy_timeout(database->connection.get(), 0);
    database->connection.run("PRAGMA journal_mode = DELETE");
  } catch (const SqliteError&) {
  }
}

}  // namespace ddp_doctor
