// SPDX-License-Identifier: BSD-3-Clause
#include "lib/record/reader.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <set>
#include <utility>

#include "lib/error.h"
#include "lib/record/open_record.h"
#include "lib/record/plausible.h"
#include "lib/record/waiting_steps.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;

std::vector<std::int64_t> sizes_of(const std::string& json) {
  std::vector<std::int64_t> sizes;
  const auto damaged = [&] {
    return SqliteError(SQLITE_CORRUPT, "a tensor has the sizes '" + json + "'");
  };
  if (json.size() < 2 || json.front() != '[' || json.back() != ']') throw damaged();
  const char* at = json.data() + 1;
  const char* const end = json.data() + json.size() - 1;
  while (at < end) {
    std::int64_t size = 0;
    const auto [next, failure] = std::from_chars(at, end, size);
    if (failure != std::errc() || (next < end && *next != ',')) throw damaged();
    sizes.push_back(size);
    at = next < end ? next + 1 : end;
  }
  return sizes;
}

RecordHeader read_header(const Connection& connection) {
  RecordHeader header;
  Statement row(connection, "SELECT rank, world_size, probe, program FROM header");
  row.bind_all();
  if (!row.next()) throw SqliteError(SQLITE_CORRUPT, "no row in table 'header'");
  header.rank = row.small(0);
  header.world_size = row.small(1);
  header.probe = row.text(2);
  header.program = row.text(3);
  Statement detail(connection, "SELECT key, value FROM detail");
  detail.bind_all();
  while (detail.next()) header.details[detail.text(0)] = detail.text(1);
  return header;
}

std::vector<TensorInfo> read_tensors(const Connection& connection) {
  std::vector<TensorInfo> tensors;
  Statement row(connection,
                "SELECT id, name, kind, dtype, sizes, numel, trainable, ddp_index, module, wrapper "
                "FROM tensor ORDER BY id");
  row.bind_all();
  while (row.next()) {
    TensorInfo t;
    t.id = row.small(0);
    t.name = row.text(1);
    t.kind = row.text(2);
    t.dtype = row.text(3);
    t.sizes = sizes_of(row.text(4));
    t.numel = plausible_elements(row.integer(5));
    t.trainable = row.flag(6);
    if (!row.is_null(7)) t.ddp_index = row.small(7);
    t.module = row.text(8);
    if (!row.is_null(9)) t.wrapper = row.small(9);
    tensors.push_back(std::move(t));
  }
  return tensors;
}

std::vector<StepRecord> read_steps(const Connection& connection) {
  std::vector<StepRecord> steps;
  Statement row(
      connection,
      "SELECT step, loss, started_ns, duration_ns, probe_ns, backwards, unsynchronized_backwards, "
      "forwards_through_wrapper, forwards_around_wrapper, collectives, collective_bytes, "
      "optimizer, examined, skipped, scale, trace FROM step ORDER BY step");
  row.bind_all();
  while (row.next()) {
    StepRecord s;
    s.step = row.integer(0);
    if (!row.is_null(1)) s.loss = row.real(1);
    s.started_ns = plausible_time(row.integer(2));
    s.duration_ns = plausible_duration(row.integer(3));
    s.probe_ns = plausible_duration(row.integer(4));
    s.backwards = row.small(5);
    s.unsynchronized_backwards = row.small(6);
    s.forwards_through_wrapper = row.small(7);
    s.forwards_around_wrapper = row.small(8);
    s.collectives = row.small(9);
    s.collective_bytes = row.integer(10);
    s.optimizer = row.small(11);
    s.examined = row.flag(12);
    s.skipped = row.flag(13);
    if (!row.is_null(14)) s.scale = row.real(14);
    s.trace = row.text(15);
    steps.push_back(std::move(s));
  }
  return steps;
}

[[noreturn]] void refuse_step(std::int64_t number) {
  throw SqliteError(SQLITE_CORRUPT,
                    "rows of step " + std::to_string(number) + ", which is not in table 'step'");
}

template <class Number>
Number one_of(int number, int count, const char* what) {
  if (number < 0 || number >= count)
    throw SqliteError(SQLITE_CORRUPT,
                      std::string("a row has ") + what + " " + std::to_string(number));
  return static_cast<Number>(number);
}

Slot slot_of(int what, int stage) {
  return {one_of<Seen>(what, 3, "content of kind"), one_of<Stage>(stage, kStages, "stage")};
}

Root root_of(const std::vector<std::uint8_t>& bytes) {
  Root root{};
  if (bytes.size() != root.size())
    throw SqliteError(SQLITE_CORRUPT, "a root of " + std::to_string(bytes.size()) + " bytes");
  std::copy(bytes.begin(), bytes.end(), root.begin());
  return root;
}

Collective collective_of(const Statement& row) {
  return {row.text(2),   row.text(3),
          row.text(4),   plausible_elements(row.integer(5)),
          row.text(6),   row.text(7),
          row.text(8),   row.text(9),
          row.small(10), plausible_times(row.integer(11))};
}

// All steps.
constexpr auto kFirst = std::numeric_limits<std::int64_t>::min();
constexpr auto kLast = std::numeric_limits<std::int64_t>::max();

// The rows of a query whose column 0 is the step, ascending, a step at a time.
class RowsByStep {
 public:
  // `sql` has two parameters: the first step and the last.
  RowsByStep(const Connection& connection, const char* sql, std::int64_t first, std::int64_t last)
      : row_(connection, sql) {
    row_.bind_all(first, last);
    more_ = row_.next();
  }

  // Nothing after the last row.
  std::optional<std::int64_t> step() const {
    return more_ ? std::optional(row_.integer(0)) : std::nullopt;
  }
  // Calls use(row) for each row of `step`, the present one or later.
  template <class Use>
  void each(std::int64_t step, const Use& use) {
    for (; more_ && row_.integer(0) == step; more_ = row_.next()) use(row_);
  }

 private:
  Statement row_;
  bool more_ = false;
};

void read_calls(const Connection& connection, std::vector<StepRecord>& steps) {
  RowsByStep rows(
      connection,
      "SELECT step, position, op, reduce, dtype, numel, process_group, moment, target, file, line, "
      "count FROM collective WHERE step BETWEEN ? AND ? ORDER BY step, position",
      kFirst, kLast);
  for (auto& step : steps) {
    rows.each(step.step, [&](const Statement& row) { step.calls.push_back(collective_of(row)); });
  }
  if (rows.step()) refuse_step(*rows.step());
}

std::vector<DdpField> read_ddp_fields(const Connection& connection) {
  std::vector<DdpField> fields;
  Statement row(connection,
                "SELECT moment, key, value, is_integer, wrapper FROM ddp_field ORDER BY id");
  row.bind_all();
  while (row.next())
    fields.push_back({row.text(0), row.text(1), row.text(2), row.flag(3), row.small(4)});
  return fields;
}

std::vector<Event> read_events(const Connection& connection) {
  std::vector<Event> events;
  Statement row(connection, "SELECT step, time_ns, kind, phase, text FROM event ORDER BY id");
  row.bind_all();
  while (row.next()) {
    events.push_back(
        {row.integer(0), plausible_time(row.integer(1)), row.text(2), row.text(3), row.text(4)});
  }
  return events;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

std::vector<Site> read_sites(const Connection& connection) {
  std::vector<Site> sites;
  Statement row(connection, "SELECT what, step, file, line, via FROM site ORDER BY id");
  row.bind_all();
  while (row.next()) {
    sites.push_back(
        {row.text(0), row.integer(1), row.text(2), row.small(3), lines_of(row.text(4))});
  }
  return sites;
}

std::vector<Fact> read_facts(const Connection& connection) {
  std::vector<Fact> facts;
  Statement row(connection, "SELECT step, subject, key, value FROM fact ORDER BY id");
  row.bind_all();
  while (row.next()) facts.push_back({row.integer(0), row.text(1), row.text(2), row.text(3)});
  return facts;
}

using Lists = std::map<std::int64_t, std::shared_ptr<const TensorList>>;

std::shared_ptr<const TensorList> read_list(const Connection& connection, std::int64_t number) {
  TensorList list;
  Statement row(connection,
                "SELECT tensor, numel FROM tensor_list WHERE list = ? ORDER BY position");
  row.bind_all(number);
  while (row.next()) list.push_back({row.small(0), plausible_elements(row.integer(1))});
  return std::make_shared<const TensorList>(std::move(list));
}

// From the columns what, stage, list, root, bytes; `first` is that of what.
PackedRow packed_row_of(const Connection& connection, const Statement& row, int first,
                        Lists& lists) {
  PackedRow packed;
  packed.slot = slot_of(row.small(first), row.small(first + 1));
  auto& list = lists[row.integer(first + 2)];
  if (list == nullptr) list = read_list(connection, row.integer(first + 2));
  packed.list = list;
  packed.root = root_of(row.blob(first + 3));
  packed.bytes = row.blob(first + 4);
  if (!packed.fits()) {
    throw SqliteError(SQLITE_CORRUPT, "a row of " + std::to_string(packed.bytes.size()) +
                                          " bytes about " + std::to_string(packed.size()) +
                                          " tensors");
  }
  return packed;
}

void read_roots(const Connection& connection, std::vector<StepRecord>& steps) {
  RowsByStep rows(connection,
                  "SELECT step, what, stage, root FROM seen WHERE step BETWEEN ? AND ? ORDER BY "
                  "step, what, stage",
                  kFirst, kLast);
  for (auto& step : steps) {
    rows.each(step.step, [&](const Statement& row) {
      step.roots.push_back({slot_of(row.small(1), row.small(2)), root_of(row.blob(3))});
    });
    step.roots.shrink_to_fit();
  }
  if (rows.step()) refuse_step(*rows.step());
}

RankRecord read_outline_of(const Connection& connection, const fs::path& file) {
  RankRecord record;
  record.header = read_header(connection);
  record.tensors = read_tensors(connection);
  record.steps = read_steps(connection);
  read_calls(connection, record.steps);
  read_roots(connection, record.steps);
  const auto last = record.steps.empty() ? kFirst : record.steps.back().step;
  for (auto& step : read_waiting_steps(fs::path(file).replace_extension("steps"), last))
    record.steps.push_back(std::move(step));
  record.ddp_fields = read_ddp_fields(connection);
  record.events = read_events(connection);
  record.sites = read_sites(connection);
  record.facts = read_facts(connection);
  return record;
}

}  // namespace

struct RecordReader::Database {
  explicit Database(const fs::path& file_) : file(file_), connection(open_record(file_)) {}

  fs::path file;
  Connection connection;
  Lists lists;
  std::optional<Statement> seen;  // prepared once: to prepare it takes longer than to run it

  // Runs `work`, and explains SQLite errors.
  template <class Work>
  auto guarded(const Work& work) -> decltype(work()) {
    try {
      return work();
    } catch (const SqliteError& error) {
      refuse_record(file, error);
    }
  }
};

RecordReader::RecordReader(const fs::path& file) : database_(std::make_unique<Database>(file)) {}

RecordReader::~RecordReader() = default;
RecordReader::RecordReader(RecordReader&&) noexcept = default;

bool RecordReader::closed() const {
  return database_->guarded([&] {
    Statement mode(database_->connection, "PRAGMA journal_mode");
    mode.bind_all();
    return mode.next() && mode.text(0) != "wal";
  });
}

RankRecord RecordReader::read() const {
  auto& connection = database_->connection;
  return database_->guarded([&] {
    Transaction snapshot(connection, "DEFERRED");  // all tables as of one moment
    RankRecord record = read_outline_of(connection, database_->file);
    RowsByStep rows(
        connection,
        "SELECT step, what, stage, list, root, bytes FROM seen JOIN content ON content.id = "
        "seen.content WHERE step BETWEEN ? AND ? ORDER BY step, what, stage",
        kFirst, kLast);
    for (auto& step : record.steps) {
      rows.each(step.step, [&](const Statement& row) {
        unpack(packed_row_of(connection, row, 1, database_->lists), step);
      });
    }
    return record;
  });
}

RankRecord RecordReader::read_outline() const {
  return database_->guarded([&] {
    Transaction snapshot(database_->connection, "DEFERRED");
    return read_outline_of(database_->connection, database_->file);
  });
}

std::vector<std::optional<PackedRow>> RecordReader::seen(
    Slot slot, const std::vector<std::int64_t>& steps) const {
  return database_->guarded([&] {
    auto& connection = database_->connection;
    Transaction snapshot(connection, "DEFERRED");  // or each step would lock the file again
    if (!database_->seen) {
      database_->seen.emplace(
          connection,
          "SELECT what, stage, list, root, bytes FROM seen JOIN content ON content.id = "
          "seen.content WHERE step = ? AND what = ? AND stage = ?");
    }
    Statement& row = *database_->seen;
    std::vector<std::optional<PackedRow>> rows(steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i) {
      row.bind_all(steps[i], static_cast<int>(slot.what), static_cast<int>(slot.stage));
      if (row.next()) rows[i] = packed_row_of(connection, row, 0, database_->lists);
    }
    row.reset();  // or its lock would stay
    sqlite3_db_release_memory(connection.get());
    return rows;
  });
}

std::optional<Root> RecordReader::root(std::int64_t step, Slot slot) const {
  return database_->guarded([&]() -> std::optional<Root> {
    Statement row(database_->connection,
                  "SELECT root FROM seen WHERE step = ? AND what = ? AND stage = ?");
    row.bind_all(step, static_cast<int>(slot.what), static_cast<int>(slot.stage));
    return row.next() ? std::optional(root_of(row.blob(0))) : std::nullopt;
  });
}

std::map<std::int64_t, Root> RecordReader::roots(Slot slot, std::int64_t first,
                                                 std::int64_t last) const {
  return database_->guarded([&] {
    std::map<std::int64_t, Root> roots;
    Statement row(
        database_->connection,
        "SELECT step, root FROM seen WHERE what = ? AND stage = ? AND step BETWEEN ? AND ?");
    row.bind_all(static_cast<int>(slot.what), static_cast<int>(slot.stage), first, last);
    while (row.next()) roots[row.integer(0)] = root_of(row.blob(1));
    return roots;
  });
}

std::int64_t RecordReader::last_examined_step() const {
  return database_->guarded([&] {
    Statement row(database_->connection, "SELECT MAX(step) FROM step WHERE examined = 1");
    row.bind_all();
    return row.next() && !row.is_null(0) ? row.integer(0) : std::int64_t{-1};
  });
}

RecordReader::Weights RecordReader::weights(std::int64_t step) const {
  return database_->guarded([&] {
    Weights weights{step, {}};
    const auto row = seen({Seen::kDigests, Stage::kWeight}, {step}).front();
    if (!row) return weights;
    std::map<int, std::size_t> positions;
    for (std::size_t i = 0; i < row->size(); ++i) positions[(*row->list)[i].tensor] = i;
    std::set<std::string> placed;
    Statement names(database_->connection, "SELECT key FROM fact WHERE subject = 'placement'");
    while (names.next()) placed.insert(names.text(0));
    for (const auto& tensor : read_tensors(database_->connection)) {
      const auto at = positions.find(tensor.id);
      const bool on_mesh = placed.contains(tensor.name.substr(tensor.name.find(':') + 1));
      if (at != positions.end() && tensor.kind == "parameter" && !on_mesh)
        weights.bits[tensor.name] = row->digest(at->second).bits;
    }
    return weights;
  });
}

RecordHeader RecordReader::header() const {
  return database_->guarded([&] { return read_header(database_->connection); });
}

int RecordReader::tensor_id(const std::string& name) const {
  return database_->guarded([&] {
    Statement row(database_->connection, "SELECT id FROM tensor WHERE name = ?");
    row.bind_all(name);
    return row.next() ? row.small(0) : -1;
  });
}

std::vector<std::uint8_t> RecordReader::values(std::int64_t step, int tensor, Stage stage) const {
  return database_->guarded([&] {
    Statement row(database_->connection,
                  "SELECT bytes FROM kept_values WHERE step = ? AND tensor = ? AND stage = ?");
    row.bind_all(step, tensor, static_cast<int>(stage));
    return row.next() ? row.blob(0) : std::vector<std::uint8_t>();
  });
}

}  // namespace ddp_doctor
