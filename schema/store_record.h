// SPDX-License-Identifier: Apache-2.0

// The rows that are not of one version: store, branch and its settings, tag,
// pin.

#ifndef CKPTREE_SCHEMA_STORE_RECORD_H_
#define CKPTREE_SCHEMA_STORE_RECORD_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace ckptree::schema {

// Written first of all; changed where a feature is put in.
struct StoreRecord {
  std::string uuid;  // 16 bytes.
  std::uint32_t format = 0;
  std::int64_t created_ns = 0;
  std::string created_by;
  // Features by name. One of `incompat` that an engine does not know: it must
  // refuse the store; of `ro_compat`: it may only read; of `compat`: ignore.
  std::vector<std::string> incompat;
  std::vector<std::string> ro_compat;
  std::vector<std::string> compat;

  friend bool operator==(const StoreRecord&, const StoreRecord&) = default;
};

struct BranchRecord {
  std::uint64_t tip = 0;  // 0: the next save of this branch is full.
  std::string name = {};  // Empty for branch 0 alone.
  // Where it was forked; version 0 for branch 0.
  std::uint32_t origin_branch = 0;
  std::int64_t origin_step = 0;
  std::uint64_t origin_version = 0;
  std::int64_t created_ns = 0;

  friend bool operator==(const BranchRecord&, const BranchRecord&) = default;
};

// What the people who use a branch want of it.
struct BranchSettings {
  std::string policy = {};  // Which steps live, in text form; empty: all.
  std::string set_by = {};  // The engine that knew what the policy means.
  std::int64_t set_ns = 0;
  std::string metadata = {};  // JSON, of the whole run.
  bool from_program = false;  // The policy follows the options of a program.

  friend bool operator==(const BranchSettings&,
                         const BranchSettings&) = default;
};

struct TagRecord {
  std::uint32_t branch = 0;
  std::int64_t step = 0;
  std::uint64_t version = 0;
  std::int64_t created_ns = 0;

  friend bool operator==(const TagRecord&, const TagRecord&) = default;
};

struct PinRecord {
  std::uint32_t branch = 0;
  std::int64_t step = 0;
  std::int64_t created_ns = 0;

  friend bool operator==(const PinRecord&, const PinRecord&) = default;
};

std::string EncodeStoreRecord(const StoreRecord& record);
absl::StatusOr<StoreRecord> DecodeStoreRecord(std::string_view bytes);
std::string EncodeBranchRecord(const BranchRecord& record);
absl::StatusOr<BranchRecord> DecodeBranchRecord(std::string_view bytes);
std::string EncodeBranchSettings(const BranchSettings& settings);
absl::StatusOr<BranchSettings> DecodeBranchSettings(std::string_view bytes);
std::string EncodeTagRecord(const TagRecord& record);
absl::StatusOr<TagRecord> DecodeTagRecord(std::string_view bytes);
std::string EncodePinRecord(const PinRecord& record);
absl::StatusOr<PinRecord> DecodePinRecord(std::string_view bytes);

}  // namespace ckptree::schema

#endif  // CKPTREE_SCHEMA_STORE_RECORD_H_
