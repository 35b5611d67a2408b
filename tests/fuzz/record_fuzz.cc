// SPDX-License-Identifier: Apache-2.0

// Fuzzes the rows: store, step, step meta, branch, tag and pin; and what stands
// in an object store.

#include <cstddef>
#include <cstdint>

#include "schema/envelope.h"
#include "schema/remote_record.h"
#include "schema/step_record.h"
#include "schema/store_record.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/stored_record.h"

namespace ckptree::fuzz {
namespace {

// As EncodeStepRecord, of a type that no `==` compares: a metric may be NaN.
struct Step {
  schema::StepRecord record;
};

absl::StatusOr<Step> DecodeStep(std::string_view bytes) {
  absl::StatusOr<schema::StepRecord> record = schema::DecodeStepRecord(bytes);
  if (!record.ok()) return record.status();
  Require(schema::Validate(*record).ok(), "what is decoded may be saved");
  return Step{*std::move(record)};
}

absl::StatusOr<schema::StepMeta> DecodeMeta(std::string_view bytes) {
  absl::StatusOr<schema::StepMeta> meta = schema::DecodeStepMeta(bytes);
  if (meta.ok()) {
    Require(schema::Validate(*meta).ok(), "what is decoded may be saved");
  }
  return meta;
}

void FuzzRow(const StoredRecord& row) {
  using schema::RecordKind;
  switch (static_cast<RecordKind>(row.kind)) {
    case RecordKind::kStore:
      return RequireRoundTrip(row.bytes, schema::EncodeStoreRecord,
                              schema::DecodeStoreRecord);
    case RecordKind::kStep:
      return RequireRoundTrip(
          row.bytes,
          [](const Step& step) {
            return schema::EncodeStepRecord(step.record);
          },
          DecodeStep);
    case RecordKind::kStepMeta:
      return RequireRoundTrip(row.bytes, schema::EncodeStepMeta, DecodeMeta);
    case RecordKind::kBranch:
      return RequireRoundTrip(row.bytes, schema::EncodeBranchRecord,
                              schema::DecodeBranchRecord);
    case RecordKind::kBranchSettings:
      return RequireRoundTrip(row.bytes, schema::EncodeBranchSettings,
                              schema::DecodeBranchSettings);
    case RecordKind::kTag:
      return RequireRoundTrip(row.bytes, schema::EncodeTagRecord,
                              schema::DecodeTagRecord);
    case RecordKind::kPin:
      return RequireRoundTrip(row.bytes, schema::EncodePinRecord,
                              schema::DecodePinRecord);
    case RecordKind::kFarSegment:
      return RequireRoundTrip(row.bytes, schema::EncodeFarSegment,
                              schema::DecodeFarSegment);
    case RecordKind::kRemoteStore:
      return RequireRoundTrip(row.bytes, schema::EncodeRemoteStore,
                              schema::DecodeRemoteStore);
    case RecordKind::kRemoteRows:
      return RequireRoundTrip(row.bytes, schema::EncodeRemoteRows,
                              schema::DecodeRemoteRows);
    case RecordKind::kRemoteCommit:
      return RequireRoundTrip(row.bytes, schema::EncodeRemoteCommit,
                              schema::DecodeRemoteCommit);
    case RecordKind::kRemoteRun:
      return RequireRoundTrip(row.bytes, schema::EncodeRemoteRun,
                              schema::DecodeRemoteRun);
    case RecordKind::kRemoteIndex:
      return RequireRoundTrip(row.bytes, schema::EncodeRemoteIndex,
                              schema::DecodeRemoteIndex);
    default:
      return;
  }
}

}  // namespace
}  // namespace ckptree::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  ckptree::fuzz::FuzzRow(
      ckptree::fuzz::RecordOf(ckptree::fuzz::TextOf(data, size)));
  return 0;
}
