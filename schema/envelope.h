// SPDX-License-Identifier: Apache-2.0

// The frame of every stored record: what it is, whether it is whole.

#ifndef CKPTREE_SCHEMA_ENVELOPE_H_
#define CKPTREE_SCHEMA_ENVELOPE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "schema/fault.h"

namespace ckptree::schema {

// What an envelope holds. ON DISK: never renumber or reuse one.
enum class RecordKind : std::uint8_t {
  kStore = 1,
  kStep = 2,
  kStepMeta = 3,
  kTreeRoot = 4,
  kTreePage = 5,
  kDeadList = 6,
  kSegmentRow = 7,
  kBranch = 8,
  kTag = 9,
  kPin = 10,
  kLeafRecord = 11,
  kSmallHeader = 12,
  kSegmentHeader = 13,
  kSegmentTable = 14,
  kPartHandoff = 15,  // In staging only.
  kBranchSettings = 16,
  kRankPlan = 17,  // Between processes only, as the next two.
  kPartToken = 18,
  kRankMail = 19,
  kStoreRequest = 20,  // In `requests` only, as the next one.
  kStoreAnswer = 21,
  kFarSegment = 22,
  kRemoteStore = 32,  // In object stores only, as the next four.
  kRemoteCommit = 33,
  kRemoteRows = 34,
  kRemoteRun = 35,
  kRemoteIndex = 36,
};

// "step record", "leaf record", ...
std::string_view Name(RecordKind kind);

// Sixteen bytes, then the body:
//   'c' 'k'  kind:u8  format:u8  length:u32be  checksum:u64be  body
// The checksum is XXH3-64 of the first eight bytes and the body.
inline constexpr std::size_t kEnvelopeBytes = 16;
inline constexpr std::string_view kEnvelopeMagic = "ck";

// Appends the envelope of `body` to `out`.
void AppendEnvelope(RecordKind kind, std::string_view body, std::string* out);
std::string Envelope(RecordKind kind, std::string_view body);

// Of the envelope that begins at `at` and ends with `out`: writes all but its
// body, which is there.
void SealEnvelope(RecordKind kind, std::size_t at, std::string* out);

// The envelope of a protobuf `message`, which is encoded into its place.
template <typename Message>
std::string EnvelopeOf(RecordKind kind, const Message& message) {
  std::string out;
  out.reserve(kEnvelopeBytes + message.ByteSizeLong());
  out.resize(kEnvelopeBytes);
  message.AppendToString(&out);
  SealEnvelope(kind, 0, &out);
  return out;
}

// Returns the body, a view into `bytes`. kDataLoss, naming the kind and the
// fault, where the magic, kind, length or checksum is wrong;
// kFailedPrecondition with both numbers where the format is newer.
absl::StatusOr<std::string_view> OpenEnvelope(RecordKind kind,
                                              std::string_view bytes);

// OpenEnvelope(), then the body as a protobuf `message`.
template <typename Message>
absl::Status ParseEnvelope(RecordKind kind, std::string_view bytes,
                           Message* message) {
  const absl::StatusOr<std::string_view> body = OpenEnvelope(kind, bytes);
  if (!body.ok()) return body.status();
  if (message->ParseFromArray(body->data(), static_cast<int>(body->size()))) {
    return absl::OkStatus();
  }
  return Fault(kind, "the body does not parse");
}

}  // namespace ckptree::schema

#endif  // CKPTREE_SCHEMA_ENVELOPE_H_
