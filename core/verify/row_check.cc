// SPDX-License-Identifier: Apache-2.0

#include "core/verify/row_check.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "schema/keys.h"
#include "schema/remote_record.h"
#include "schema/segment_record.h"
#include "schema/store_record.h"
#include "schema/tree.h"

namespace ckptree::internal {
namespace {

using schema::Row;
using schema::Space;

absl::Status DecodeRow(std::string_view key, std::string_view value) {
  switch (static_cast<Row>(key.front())) {
    case Row::kStore:
      return schema::DecodeStoreRecord(value).status();
    case Row::kStep:
    case Row::kRemoved:
      return schema::DecodeStepRecord(value).status();
    case Row::kStepMeta:
      return schema::DecodeStepMeta(value).status();
    case Row::kTree:
    case Row::kTreePage: {
      const auto row = static_cast<Row>(key.front());
      const auto digest = schema::DecodeDigestKey(row, key);
      if (!digest.has_value() || base::DigestOf(value) != *digest) {
        return absl::DataLossError("its bytes have another digest");
      }
      return row == Row::kTree ? schema::DecodeTreeRoot(value).status()
                               : schema::DecodeTreePage(value).status();
    }
    case Row::kDead:
      return schema::DecodeDeadList(value).status();
    case Row::kSegment:
      return schema::DecodeSegmentRow(value).status();
    case Row::kCommit:  // Of engines before the journal.
      break;
    case Row::kBranch:
      return schema::DecodeBranchRecord(value).status();
    case Row::kTag:
      return schema::DecodeTagRecord(value).status();
    case Row::kPin:
      return schema::DecodePinRecord(value).status();
    case Row::kSettings:
      return schema::DecodeBranchSettings(value).status();
    case Row::kFar:
      return schema::DecodeFarSegment(value).status();
  }
  return absl::DataLossError("no row has such a key");
}

// The blocks of one part of a small save, against its header.
struct SmallPart {
  std::optional<schema::SmallHeader> header;
  std::uint64_t version = 0;
  std::uint16_t part = 0;
  std::uint32_t count = 0;
  base::DigestStream digest;

  void Check(const kv::Database& database, Damage* damage) const {
    if (!header.has_value()) return;
    // A scan passes damaged blocks, and tells of the damage; which leaves are
    // hurt, if any, is found chunk by chunk.
    if (count < header->block_count && !database.IndexDamage().empty()) return;
    if (header->block_count == count && header->digest == digest.Finish()) {
      return;
    }
    damage->Add(Finding::Severity::kDamage,
                absl::StrFormat("small v%d part %d: its %d blocks are not the "
                                "%d that were saved",
                                version, part, count, header->block_count));
  }
};

absl::Status CheckSmallRows(const kv::Database& database,
                            const std::function<bool()>& cancelled,
                            Damage* damage) {
  CKPTREE_ASSIGN_OR_RETURN(kv::Iterator scan,
                           database.Scan(Space::kSmall, "", ""));
  std::optional<SmallPart> current;
  for (; scan.Valid(); scan.Next()) {
    if (cancelled && cancelled()) return absl::CancelledError("verify stopped");
    const auto fields = schema::DecodeSmallKey(scan.key());
    if (!fields.has_value()) {
      damage->Add(Finding::Severity::kDamage,
                  schema::DescribeKey(Space::kSmall, scan.key()) +
                      ": no block has such a key");
      continue;
    }
    if (!current.has_value() || current->version != fields->version ||
        current->part != fields->part) {
      if (current.has_value()) current->Check(database, damage);
      current.emplace();
      current->version = fields->version;
      current->part = fields->part;
    }
    if (fields->kind == schema::BlockKind::kHeader) {
      auto header = schema::DecodeSmallHeader(scan.value());
      if (header.ok()) {
        current->header = *header;
      } else {
        damage->Add(Finding::Severity::kDamage,
                    schema::DescribeKey(Space::kSmall, scan.key()) + ": " +
                        std::string(header.status().message()));
      }
      continue;
    }
    ++current->count;
    current->digest.Update(scan.key());
    current->digest.Update(scan.value());
  }
  if (current.has_value()) current->Check(database, damage);
  return scan.status();
}

}  // namespace

absl::Status CheckRows(const kv::Database& database,
                       const std::function<bool()>& cancelled, Damage* damage) {
  CKPTREE_ASSIGN_OR_RETURN(kv::Iterator scan,
                           database.Scan(Space::kRecords, "", ""));
  for (; scan.Valid(); scan.Next()) {
    if (cancelled && cancelled()) return absl::CancelledError("verify stopped");
    if (scan.key().empty()) continue;
    if (const absl::Status status = DecodeRow(scan.key(), scan.value());
        !status.ok()) {
      damage->Add(
          Finding::Severity::kDamage,
          absl::StrFormat("%s: %s",
                          schema::DescribeKey(Space::kRecords, scan.key()),
                          status.message()));
    }
  }
  if (!scan.status().ok()) {
    damage->Add(Finding::Severity::kDamage,
                absl::StrFormat("records: %s", scan.status().message()));
  }
  if (const absl::Status status = CheckSmallRows(database, cancelled, damage);
      !status.ok()) {
    if (absl::IsCancelled(status)) return status;
    damage->Add(Finding::Severity::kDamage,
                absl::StrFormat("small: %s", status.message()));
  }
  return absl::OkStatus();
}

}  // namespace ckptree::internal
