#include "lib/record/reader.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <limits>
#include <set>
#include <utility>

#include "lib/error.h"
#include "lib/record/schema.h"
#include "lib/record/statement.h"

namespace ddp_doctor {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSqliteMagic("SQLite format 3\0", 16);

[[noreturn]] void refuse(const fs::path& file, const std::string& reason) {
  throw Error("cannot read " + file.string() + ": " + reason);
}

[[noreturn]] void refuse_damaged(const fs::path& file, const std::string& reason) {
  refuse(file, "the record is damaged or cut short (" + reason +
                   "): copy it again from where it was written, together with any -wal file "
                   "beside it, or repeat the run");
}

[[noreturn]] void refuse(const fs::path& file, const SqliteError& error) {
  switch (error.primary_code()) {
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
    case SQLITE_IOERR:
      refuse(file, std::string(error.what()) +
                       ": check its permissions; if its writer was killed and the folder is "
                       "read-only, copy the folder to where it can be written");
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      refuse(file, std::string(error.what()) + ": another program locks it, try again after that");
    case SQLITE_NOMEM:
      refuse(file, std::string(error.what()) + ": free some memory and try again");
    default:
      refuse_damaged(file, error.what());
  }
}

std::uintmax_t size_or_zero(const fs::path& file) {
  std::error_code ignored;
  const std::uintmax_t size = fs::file_size(file, ignored);
  return ignored ? 0 : size;
}

// A log or journal that SQLite must take into account.
bool needs_recovery(const fs::path& file) {
  return size_or_zero(file.string() + "-wal") > 0 || size_or_zero(file.string() + "-journal") > 0;
}

std::uint32_t big_endian(const std::string& bytes, std::size_t at, std::size_t count) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < count; ++i) {
    value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  }
  return value;
}

// What can be told without SQLite, whose own messages would not say what to do. In particular
// SQLite reads the missing part of the last page as zeros.
void check_file(const fs::path& file) {
  const fs::file_status status = fs::status(file);
  if (!fs::exists(status)) refuse(file, "there is no such file: give the folder of a recorded run");
  if (fs::is_directory(status)) {
    refuse(file, "it is a folder: give a rank-*.sqlite file inside it");
  }
  if (!fs::is_regular_file(status))
    refuse(file, "it is no regular file: give a rank-*.sqlite file");
  // In this order: a writer that is at work only ever makes the file longer than its header says.
  const bool log = needs_recovery(file);
  std::string start(100, '\0');
  std::ifstream in(file, std::ios::binary);
  if (!in) refuse(file, "it cannot be opened: check its permissions");
  in.read(start.data(), static_cast<std::streamsize>(start.size()));
  const auto got = static_cast<std::size_t>(in.gcount());
  const std::uintmax_t size = size_or_zero(file);
  if (got == 0) refuse(file, "it is empty: repeat the run, or remove the file");
  if (start.compare(0, std::min(got, kSqliteMagic.size()),
                    kSqliteMagic.substr(0, std::min(got, kSqliteMagic.size()))) != 0) {
    refuse(file, "it is not an SQLite file: give a rank-*.sqlite file that ddp-doctor wrote");
  }
  if (got < start.size()) refuse_damaged(file, std::to_string(size) + " bytes");
  std::uintmax_t page = big_endian(start, 16, 2);
  if (page == 1) page = 65536;
  // With a log, the file may lack whole pages that the log has.
  const std::uintmax_t expected = log ? page : page * big_endian(start, 28, 4);
  if (page == 0 || size < expected || size % page != 0) {
    refuse_damaged(file, std::to_string(size) + " bytes, at least " + std::to_string(expected) +
                             " are needed in pages of " + std::to_string(page));
  }
}

std::int64_t pragma(const Connection& connection, const char* sql) {
  Statement statement(connection, sql);
  statement.bind_all();
  if (!statement.next()) throw SqliteError(SQLITE_CORRUPT, "a PRAGMA gave no value");
  return statement.integer(0);
}

// Refuses what is SQLite and yet no record that this build can read.
void check_record(const fs::path& file, const Connection& connection) {
  if (pragma(connection, "PRAGMA application_id") != kApplicationId) {
    refuse(file,
           "it is an SQLite file of another program: give a rank-*.sqlite file that "
           "ddp-doctor wrote");
  }
  const std::int64_t version = pragma(connection, "PRAGMA user_version");
  if (version > kSchemaVersion) {
    refuse(file, "written by a newer ddp-doctor (schema " + std::to_string(version) +
                     ", this build reads up to " + std::to_string(kSchemaVersion) +
                     "): update ddp-doctor");
  }
  if (version < 1) refuse_damaged(file, "schema " + std::to_string(version));
  std::set<std::string> tables;
  Statement names(connection, "SELECT name FROM sqlite_master WHERE type = 'table'");
  names.bind_all();
  while (names.next()) tables.insert(names.text(0));
  for (const char* table : schema_tables()) {
    if (!tables.contains(table)) refuse_damaged(file, std::string("no table '") + table + "'");
  }
}

// The first statement is what makes SQLite look at the file, its locks and its log.
Connection open_with(const fs::path& file, int flags, bool immutable) {
  Connection connection(file, flags, immutable);
  sqlite3_busy_timeout(connection.get(), 5000);
  pragma(connection, "PRAGMA schema_version");
  return connection;
}

// Read-only first. That fails for two kinds of records whose writer was killed: one with a rollback
// journal needs a connection that may write, and one in a read-only folder needs SQLite to believe
// that it does not change, which is right only if there is no log with something in it.
Connection open_existing(const fs::path& file) {
  try {
    return open_with(file, SQLITE_OPEN_READONLY, false);
  } catch (const SqliteError& error) {
    const int code = error.primary_code();
    if (code != SQLITE_CANTOPEN && code != SQLITE_READONLY) throw;
  }
  if (needs_recovery(file)) return open_with(file, SQLITE_OPEN_READWRITE, false);
  return open_with(file, SQLITE_OPEN_READONLY, true);
}

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
    t.numel = row.integer(5);
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
  Statement row(connection,
                "SELECT step, loss, started_ns, duration_ns, probe_ns, backwards, "
                "unsynchronized_backwards, forwards_through_wrapper, forwards_around_wrapper, "
                "collectives, collective_bytes, optimizer, examined, skipped, scale, trace "
                "FROM step ORDER BY step");
  row.bind_all();
  while (row.next()) {
    StepRecord s;
    s.step = row.integer(0);
    if (!row.is_null(1)) s.loss = row.real(1);
    s.started_ns = row.integer(2);
    s.duration_ns = row.integer(3);
    s.probe_ns = row.integer(4);
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

Stage stage_of(int number) {
  if (number < 0 || number >= kStages) {
    throw SqliteError(SQLITE_CORRUPT, "an observation has stage " + std::to_string(number));
  }
  return static_cast<Stage>(number);
}

Observation observation_of(const Statement& row) {
  Observation o;
  o.tensor = row.small(1);
  o.stage = stage_of(row.small(2));
  const std::vector<std::uint8_t> bits = row.blob(3);
  if (bits.size() != o.digest.bits.size()) {
    throw SqliteError(SQLITE_CORRUPT, "a digest of " + std::to_string(bits.size()) + " bytes");
  }
  std::copy(bits.begin(), bits.end(), o.digest.bits.begin());
  o.digest.l2_norm = row.real(4);
  o.digest.max_abs = row.real(5);
  o.digest.nonfinite = row.integer(6);
  o.digest.numel = row.integer(7);
  return o;
}

Usage usage_of(const Statement& row) {
  Usage u;
  u.tensor = row.small(1);
  u.used = row.flag(2);
  if (!row.is_null(3)) u.reached = row.flag(3);
  if (!row.is_null(4)) u.in_output = row.flag(4);
  u.frozen = row.flag(5);
  u.arrivals = row.small(6);
  u.last_backward = row.small(7);
  u.replaced = row.flag(8);
  u.in_optimizer = row.flag(9);
  u.assigned = row.flag(10);
  return u;
}

Sample sample_of(const Statement& row) {
  Sample sample{row.small(1), stage_of(row.small(2)), {}};
  const auto bytes = row.blob(3);
  sample.values.resize(bytes.size() / sizeof(double));
  if (!sample.values.empty())  // memcpy takes no null pointer, even for nothing
    std::memcpy(sample.values.data(), bytes.data(), sample.values.size() * sizeof(double));
  return sample;
}

Collective collective_of(const Statement& row) {
  return {row.text(2), row.text(3), row.text(4), row.integer(5), row.text(6),
          row.text(7), row.text(8), row.text(9), row.small(10),  row.integer(11)};
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
  RowsByStep rows(connection,
                  "SELECT step, position, op, reduce, dtype, numel, process_group, moment, "
                  "target, file, line, count FROM collective WHERE step BETWEEN ? AND ? "
                  "ORDER BY step, position",
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
    events.push_back({row.integer(0), row.integer(1), row.text(2), row.text(3), row.text(4)});
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

RankRecord read_outline_of(const Connection& connection) {
  RankRecord record;
  record.header = read_header(connection);
  record.tensors = read_tensors(connection);
  record.steps = read_steps(connection);
  read_calls(connection, record.steps);
  record.ddp_fields = read_ddp_fields(connection);
  record.events = read_events(connection);
  record.sites = read_sites(connection);
  record.facts = read_facts(connection);
  return record;
}

template <class Use>
void each_details_of(const Connection& connection, std::int64_t first, std::int64_t last,
                     const Use& use) {
  RowsByStep observations(connection,
                          "SELECT step, tensor, stage, digest, l2_norm, max_abs, nonfinite, numel "
                          "FROM observation WHERE step BETWEEN ? AND ? "
                          "ORDER BY step, tensor, stage",
                          first, last);
  RowsByStep usages(connection,
                    "SELECT step, tensor, used, reached, in_output, frozen, arrivals, "
                    "last_backward, replaced, in_optimizer, assigned FROM usage "
                    "WHERE step BETWEEN ? AND ? ORDER BY step, tensor",
                    first, last);
  RowsByStep samples(connection,
                     "SELECT step, tensor, stage, elements FROM sample "
                     "WHERE step BETWEEN ? AND ? ORDER BY step, tensor, stage",
                     first, last);
  StepRecord details;
  for (;;) {
    std::optional<std::int64_t> next;
    for (const auto* rows : {&observations, &usages, &samples}) {
      if (const auto step = rows->step(); step && (!next || *step < *next)) next = step;
    }
    if (!next) return;
    details.step = *next;
    details.observations.clear();
    details.usages.clear();
    details.samples.clear();
    observations.each(
        *next, [&](const Statement& row) { details.observations.push_back(observation_of(row)); });
    usages.each(*next, [&](const Statement& row) { details.usages.push_back(usage_of(row)); });
    samples.each(*next, [&](const Statement& row) { details.samples.push_back(sample_of(row)); });
    use(details);
  }
}

}  // namespace

struct RecordReader::Database {
  fs::path file;
  Connection connection;
};

RecordReader::RecordReader(const fs::path& file) {
  check_file(file);
  try {
    database_ = std::make_unique<Database>(Database{file, open_existing(file)});
    check_record(file, database_->connection);
  } catch (const SqliteError& error) {
    refuse(file, error);
  }
}

RecordReader::~RecordReader() = default;
RecordReader::RecordReader(RecordReader&&) noexcept = default;

RankRecord RecordReader::read() const {
  Connection& connection = database_->connection;
  try {
    Transaction snapshot(connection, "DEFERRED");  // all tables as of one moment
    RankRecord record = read_outline_of(connection);
    auto step = record.steps.begin();
    each_details_of(connection, kFirst, kLast, [&](const StepRecord& details) {
      while (step != record.steps.end() && step->step < details.step) ++step;
      if (step == record.steps.end() || step->step != details.step) refuse_step(details.step);
      step->observations = details.observations;
      step->samples = details.samples;
      step->usages = details.usages;
    });
    return record;
  } catch (const SqliteError& error) {
    refuse(database_->file, error);
  }
}

RankRecord RecordReader::read_outline() const {
  try {
    Transaction snapshot(database_->connection, "DEFERRED");
    return read_outline_of(database_->connection);
  } catch (const SqliteError& error) {
    refuse(database_->file, error);
  }
}

void RecordReader::each_details(std::int64_t first, std::int64_t last,
                                const std::function<void(const StepRecord&)>& use) const {
  try {
    Transaction snapshot(database_->connection, "DEFERRED");
    each_details_of(database_->connection, first, last, use);
  } catch (const SqliteError& error) {
    refuse(database_->file, error);
  }
}

std::int64_t RecordReader::last_examined_step() const {
  try {
    Statement row(database_->connection, "SELECT MAX(step) FROM step WHERE examined = 1");
    row.bind_all();
    return row.next() && !row.is_null(0) ? row.integer(0) : -1;
  } catch (const SqliteError& error) {
    refuse(database_->file, error);
  }
}

RecordReader::Weights RecordReader::weights(std::int64_t step) const {
  try {
    Weights weights{step, {}};
    Statement row(database_->connection,
                  "SELECT name, digest FROM observation JOIN tensor ON id = tensor "
                  "WHERE step = ? AND stage = ? AND kind = 'parameter'");
    row.bind_all(step, static_cast<int>(Stage::kWeight));
    while (row.next()) {
      const auto bits = row.blob(1);
      auto& known = weights.bits[row.text(0)];
      std::copy_n(bits.begin(), std::min(bits.size(), known.size()), known.begin());
    }
    return weights;
  } catch (const SqliteError& error) {
    refuse(database_->file, error);
  }
}

RecordHeader RecordReader::header() const {
  try {
    return read_header(database_->connection);
  } catch (const SqliteError& error) {
    refuse(database_->file, error);
  }
}

int RecordReader::tensor_id(const std::string& name) const {
  try {
    Statement row(database_->connection, "SELECT id FROM tensor WHERE name = ?");
    row.bind_all(name);
    return row.next() ? row.small(0) : -1;
  } catch (const SqliteError& error) {
    refuse(database_->file, error);
  }
}

std::vector<std::uint8_t> RecordReader::values(std::int64_t step, int tensor, Stage stage) const {
  try {
    Statement row(database_->connection,
                  "SELECT bytes FROM kept_values WHERE step = ? AND tensor = ? AND stage = ?");
    row.bind_all(step, tensor, static_cast<int>(stage));
    return row.next() ? row.blob(0) : std::vector<std::uint8_t>();
  } catch (const SqliteError& error) {
    refuse(database_->file, error);
  }
}

}  // namespace ddp_doctor
