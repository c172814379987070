// SPDX-License-Identifier: BSD-3-Clause
#include "lib/record/schema.h"

namespace ddp_doctor {

// REAL columns hold NaN as the text 'nan', because SQLite stores a NaN as NULL, and NULL means that
// there is no figure. Rows with blobs of many pages live in a table with rowids, where SQLite keeps
// them out of the index.
const char* const kSchema = R"sql(
CREATE TABLE header (
  rank INTEGER NOT NULL,
  world_size INTEGER NOT NULL,
  probe TEXT NOT NULL,
  program TEXT NOT NULL
);
CREATE TABLE detail (
  key TEXT PRIMARY KEY NOT NULL,
  value TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE tensor (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  kind TEXT NOT NULL,
  dtype TEXT NOT NULL,
  sizes TEXT NOT NULL,
  numel INTEGER NOT NULL,
  trainable INTEGER NOT NULL,
  ddp_index INTEGER,
  module TEXT NOT NULL,
  wrapper INTEGER
);
CREATE TABLE step (
  step INTEGER PRIMARY KEY,
  loss REAL,
  started_ns INTEGER NOT NULL,
  duration_ns INTEGER NOT NULL,
  probe_ns INTEGER NOT NULL,
  backwards INTEGER NOT NULL,
  unsynchronized_backwards INTEGER NOT NULL,
  forwards_through_wrapper INTEGER NOT NULL,
  forwards_around_wrapper INTEGER NOT NULL,
  collectives INTEGER NOT NULL,
  collective_bytes INTEGER NOT NULL,
  optimizer INTEGER NOT NULL,
  examined INTEGER NOT NULL,
  skipped INTEGER NOT NULL,
  scale REAL,
  trace TEXT NOT NULL
);
CREATE TABLE tensor_list (
  list INTEGER NOT NULL,
  position INTEGER NOT NULL,
  tensor INTEGER NOT NULL,
  numel INTEGER NOT NULL,
  PRIMARY KEY (list, position)
) WITHOUT ROWID;
CREATE TABLE content (
  id INTEGER PRIMARY KEY,
  bytes BLOB NOT NULL
);
CREATE TABLE seen (
  step INTEGER NOT NULL,
  what INTEGER NOT NULL,
  stage INTEGER NOT NULL,
  list INTEGER NOT NULL,
  root BLOB NOT NULL,
  content INTEGER NOT NULL,
  PRIMARY KEY (step, what, stage)
) WITHOUT ROWID;
CREATE VIEW observation AS
  SELECT step, tensor, stage, substr(bytes, 16 * position + 1, 16) AS digest
  FROM seen JOIN content ON content.id = seen.content JOIN tensor_list USING (list) WHERE what = 0;
CREATE TABLE collective (
  step INTEGER NOT NULL,
  position INTEGER NOT NULL,
  op TEXT NOT NULL,
  reduce TEXT NOT NULL,
  dtype TEXT NOT NULL,
  numel INTEGER NOT NULL,
  process_group TEXT NOT NULL,
  moment TEXT NOT NULL,
  target TEXT NOT NULL,
  file TEXT NOT NULL,
  line INTEGER NOT NULL,
  count INTEGER NOT NULL,
  PRIMARY KEY (step, position)
) WITHOUT ROWID;
CREATE TABLE kept_values (
  step INTEGER NOT NULL,
  tensor INTEGER NOT NULL,
  stage INTEGER NOT NULL,
  bytes BLOB NOT NULL,
  PRIMARY KEY (step, tensor, stage)
);
CREATE TABLE ddp_field (
  id INTEGER PRIMARY KEY,
  moment TEXT NOT NULL,
  key TEXT NOT NULL,
  value TEXT NOT NULL,
  is_integer INTEGER NOT NULL,
  wrapper INTEGER NOT NULL,
  UNIQUE (moment, key, wrapper)
);
CREATE TABLE site (
  id INTEGER PRIMARY KEY,
  what TEXT NOT NULL,
  step INTEGER NOT NULL,
  file TEXT NOT NULL,
  line INTEGER NOT NULL,
  via TEXT NOT NULL
);
CREATE TABLE fact (
  id INTEGER PRIMARY KEY,
  step INTEGER NOT NULL,
  subject TEXT NOT NULL,
  key TEXT NOT NULL,
  value TEXT NOT NULL
);
CREATE TABLE event (
  id INTEGER PRIMARY KEY,
  step INTEGER NOT NULL,
  time_ns INTEGER NOT NULL,
  kind TEXT NOT NULL,
  phase TEXT NOT NULL,
  text TEXT NOT NULL
);
)sql";

std::span<const char* const> schema_tables() {
  static constexpr const char* kTables[] = {
      "header",     "detail",      "tensor", "step",      "tensor_list", "content", "seen",
      "collective", "kept_values", "event",  "ddp_field", "site",        "fact"};
  return kTables;
}

}  // namespace ddp_doctor
