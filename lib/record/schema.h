// SPDX-License-Identifier: BSD-3-Clause
// The SQLite schema of a record. docs/record.md documents it; change both together.
#pragma once

#include <cstdint>
#include <span>

namespace ddp_doctor {

// Stored as PRAGMA user_version. Grows when a reader of the old version would misread a new record;
// a table or column that old readers may ignore does not change it.
inline constexpr std::int64_t kSchemaVersion = 2;
// The oldest version that this build reads. Version 1, with a row per tensor, was never released.
inline constexpr std::int64_t kOldestVersion = 2;

// Stored as PRAGMA application_id, "DDPd": distinguishes a record from other SQLite files.
inline constexpr std::int64_t kApplicationId = 0x44445064;

// Creates all tables in an empty database.
extern const char* const kSchema;

// The names of all tables, which a record must have.
std::span<const char* const> schema_tables();

}  // namespace ddp_doctor
