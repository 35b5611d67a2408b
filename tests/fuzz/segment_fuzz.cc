// SPDX-License-Identifier: Apache-2.0

// Fuzzes what segments and small saves say of themselves, and what processes
// hand to each other in files.

#include <cstddef>
#include <cstdint>

#include "schema/envelope.h"
#include "schema/part_handoff.h"
#include "schema/rank_message.h"
#include "schema/segment_record.h"
#include "schema/store_request.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/stored_record.h"

namespace ckptree::fuzz {
namespace {

void FuzzSegment(const StoredRecord& stored) {
  using schema::RecordKind;
  switch (static_cast<RecordKind>(stored.kind)) {
    case RecordKind::kSegmentRow:
      return RequireRoundTrip(stored.bytes, schema::EncodeSegmentRow,
                              schema::DecodeSegmentRow);
    case RecordKind::kSegmentHeader:
      return RequireRoundTrip(stored.bytes, schema::EncodeSegmentHeader,
                              schema::DecodeSegmentHeader);
    case RecordKind::kSegmentTable:
      return RequireRoundTrip(stored.bytes, schema::EncodeSegmentTable,
                              schema::DecodeSegmentTable);
    case RecordKind::kSmallHeader:
      return RequireRoundTrip(stored.bytes, schema::EncodeSmallHeader,
                              schema::DecodeSmallHeader);
    case RecordKind::kPartHandoff:
      return RequireRoundTrip(stored.bytes, schema::EncodePartHandoff,
                              schema::DecodePartHandoff);
    case RecordKind::kRankPlan:
      return RequireRoundTrip(stored.bytes, schema::EncodeRankPlan,
                              schema::DecodeRankPlan);
    case RecordKind::kPartToken:
      return RequireRoundTrip(stored.bytes, schema::EncodePartToken,
                              schema::DecodePartToken);
    case RecordKind::kRankMail:
      return RequireRoundTrip(stored.bytes, schema::EncodeRankMail,
                              schema::DecodeRankMail);
    case RecordKind::kStoreRequest:
      return RequireRoundTrip(stored.bytes, schema::EncodeStoreRequest,
                              schema::DecodeStoreRequest);
    case RecordKind::kStoreAnswer:
      return RequireRoundTrip(stored.bytes, schema::EncodeStoreAnswer,
                              schema::DecodeStoreAnswer);
    default:
      return;
  }
}

}  // namespace
}  // namespace ckptree::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  ckptree::fuzz::FuzzSegment(
      ckptree::fuzz::RecordOf(ckptree::fuzz::TextOf(data, size)));
  return 0;
}
