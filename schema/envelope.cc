// SPDX-License-Identifier: Apache-2.0

// Hot path: per leaf record.

#include "schema/envelope.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/big_endian.h"
#include "base/digest.h"
#include "schema/fault.h"
#include "schema/limits.h"

namespace ckptree::schema {
namespace {

constexpr std::size_t kPrefixBytes = 8;  // What stands before the checksum.

}  // namespace

std::string_view Name(RecordKind kind) {
  switch (kind) {
    case RecordKind::kStore:
      return "store record";
    case RecordKind::kStep:
      return "step record";
    case RecordKind::kStepMeta:
      return "step meta";
    case RecordKind::kTreeRoot:
      return "tree root";
    case RecordKind::kTreePage:
      return "tree page";
    case RecordKind::kDeadList:
      return "dead list";
    case RecordKind::kSegmentRow:
      return "segment row";
    case RecordKind::kBranch:
      return "branch record";
    case RecordKind::kTag:
      return "tag record";
    case RecordKind::kPin:
      return "pin record";
    case RecordKind::kLeafRecord:
      return "leaf record";
    case RecordKind::kSmallHeader:
      return "small header";
    case RecordKind::kSegmentHeader:
      return "segment header";
    case RecordKind::kSegmentTable:
      return "segment table";
    case RecordKind::kPartHandoff:
      return "part handoff";
    case RecordKind::kBranchSettings:
      return "branch settings";
    case RecordKind::kRankPlan:
      return "rank plan";
    case RecordKind::kPartToken:
      return "part token";
    case RecordKind::kRankMail:
      return "mail of ranks";
    case RecordKind::kStoreRequest:
      return "request";
    case RecordKind::kStoreAnswer:
      return "answer";
    case RecordKind::kFarSegment:
      return "far segment";
    case RecordKind::kRemoteStore:
      return "remote store";
    case RecordKind::kRemoteCommit:
      return "remote commit";
    case RecordKind::kRemoteRows:
      return "remote rows";
    case RecordKind::kRemoteRun:
      return "remote run";
    case RecordKind::kRemoteIndex:
      return "remote index";
  }
  return "unknown record";
}

void AppendEnvelope(RecordKind kind, std::string_view body, std::string* out) {
  const std::size_t at = out->size();
  out->reserve(at + kEnvelopeBytes + body.size());
  out->resize(at + kEnvelopeBytes);
  out->append(body);
  SealEnvelope(kind, at, out);
}

std::string Envelope(RecordKind kind, std::string_view body) {
  std::string out;
  AppendEnvelope(kind, body, &out);
  return out;
}

void SealEnvelope(RecordKind kind, std::size_t at, std::string* out) {
  const std::string_view body =
      std::string_view(*out).substr(at + kEnvelopeBytes);
  char* const frame = out->data() + at;
  kEnvelopeMagic.copy(frame, kEnvelopeMagic.size());
  frame[2] = static_cast<char>(kind);
  frame[3] = static_cast<char>(kFormatNumber);
  base::WriteBig(static_cast<std::uint32_t>(body.size()), frame + 4);
  base::WriteBig(base::ChecksumOf(std::string_view(frame, kPrefixBytes), body),
                 frame + kPrefixBytes);
}

absl::StatusOr<std::string_view> OpenEnvelope(RecordKind kind,
                                              std::string_view bytes) {
  if (bytes.size() < kEnvelopeBytes) {
    return Fault(kind, absl::StrFormat("%d bytes are too few for an envelope",
                                       bytes.size()));
  }
  if (!bytes.starts_with(kEnvelopeMagic)) {
    return Fault(kind, "the magic bytes are wrong");
  }
  const std::string_view body = bytes.substr(kEnvelopeBytes);
  const bool whole = base::ReadBig<std::uint64_t>(bytes, kPrefixBytes) ==
                     base::ChecksumOf(bytes.substr(0, kPrefixBytes), body);
  const auto format = static_cast<std::uint8_t>(bytes[3]);
  // A damaged byte must not read as "made by a newer engine", so the checksum
  // has the first word. Later formats keep the frame as it is.
  if (!whole) {
    return Fault(kind, "the checksum does not match");
  }
  if (format > kFormatNumber) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s: its format is %d, this engine reads up to %d: use a newer one",
        Name(kind), format, kFormatNumber));
  }
  if (base::ReadBig<std::uint32_t>(bytes, 4) != body.size()) {
    return Fault(kind, absl::StrFormat("its length says %d, there are %d bytes",
                                       base::ReadBig<std::uint32_t>(bytes, 4),
                                       body.size()));
  }
  if (static_cast<std::int64_t>(body.size()) > kMaxRecordBytes) {
    return Fault(kind, "it is larger than any record may be");
  }
  if (bytes[2] != static_cast<char>(kind)) {
    return Fault(
        kind,
        absl::StrFormat(
            "a %s stands in its place (kind %d)",
            Name(static_cast<RecordKind>(static_cast<std::uint8_t>(bytes[2]))),
            static_cast<std::uint8_t>(bytes[2])));
  }
  return body;
}

}  // namespace ckptree::schema
