#include "schema/segment_record.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "schema/checkpoint.pb.h"
#include "schema/digest.h"
#include "schema/envelope.h"
#include "schema/fault.h"
#include "schema/keys.h"
#include "schema/limits.h"
#include "schema/spaces.h"

namespace ckptree::schema {
namespace {

constexpr std::size_t kDigestBytes = 16;
constexpr std::size_t kUuidBytes = 16;

bool IsBlock(std::uint32_t n) {
  return SequenceOf(n) != kHeaderSequence && SequenceOf(n) <= kMaxSequence;
}

}  // namespace

std::string EncodeSegmentRow(const SegmentRow& row) {
  pb::SegmentRow out;
  out.set_first_n(row.first_n);
  out.set_last_n(row.last_n);
  out.set_block_count(row.block_count);
  out.set_bytes(row.bytes);
  return Envelope(RecordKind::kSegmentRow, out.SerializeAsString());
}

absl::StatusOr<SegmentRow> DecodeSegmentRow(std::string_view bytes) {
  pb::SegmentRow in;
  if (absl::Status status = ParseEnvelope(RecordKind::kSegmentRow, bytes, &in);
      !status.ok()) {
    return status;
  }
  if (!IsBlock(in.first_n()) || !IsBlock(in.last_n()) ||
      BuilderOf(in.first_n()) != BuilderOf(in.last_n()) ||
      in.first_n() > in.last_n() || in.block_count() == 0 ||
      in.block_count() > in.last_n() - in.first_n() + 1) {
    return Fault(RecordKind::kSegmentRow,
                 absl::StrFormat("%d blocks from %d/%d to %d/%d",
                                 in.block_count(), BuilderOf(in.first_n()),
                                 SequenceOf(in.first_n()),
                                 BuilderOf(in.last_n()),
                                 SequenceOf(in.last_n())));
  }
  return SegmentRow{in.first_n(), in.last_n(), in.block_count(), in.bytes()};
}

std::string EncodeSegmentHeader(const SegmentHeader& header) {
  pb::SegmentHeader out;
  out.set_uuid(header.uuid);
  out.set_incarnation(header.incarnation);
  out.set_version(header.version);
  out.set_part(header.part);
  out.set_space(static_cast<std::uint32_t>(header.space));
  out.set_builder(header.builder);
  out.set_attempt(header.attempt);
  return Envelope(RecordKind::kSegmentHeader, out.SerializeAsString());
}

absl::StatusOr<SegmentHeader> DecodeSegmentHeader(std::string_view bytes) {
  constexpr RecordKind kKind = RecordKind::kSegmentHeader;
  pb::SegmentHeader in;
  if (absl::Status status = ParseEnvelope(kKind, bytes, &in); !status.ok()) {
    return status;
  }
  if (in.uuid().size() != kUuidBytes) {
    return Fault(kKind, "the uuid is not 16 bytes");
  }
  if (in.version() == 0) return Fault(kKind, "it is of version 0");
  if (in.part() >= static_cast<std::uint32_t>(kMaxParts)) {
    return Fault(kKind, absl::StrFormat("part %d", in.part()));
  }
  if (in.space() != static_cast<std::uint32_t>(Space::kLeaves) &&
      in.space() != static_cast<std::uint32_t>(Space::kChunks)) {
    return Fault(kKind, absl::StrFormat("space %d", in.space()));
  }
  if (in.builder() > 0xff) {
    return Fault(kKind, absl::StrFormat("builder %d", in.builder()));
  }
  SegmentHeader header;
  header.uuid = in.uuid();
  header.incarnation = in.incarnation();
  header.version = in.version();
  header.part = static_cast<std::uint16_t>(in.part());
  header.space = static_cast<Space>(in.space());
  header.builder = static_cast<std::uint8_t>(in.builder());
  header.attempt = in.attempt();
  return header;
}

std::string EncodeSmallHeader(const SmallHeader& header) {
  pb::SmallHeader out;
  out.set_block_count(header.block_count);
  out.set_digest(header.digest.view().data(), kDigestBytes);
  return Envelope(RecordKind::kSmallHeader, out.SerializeAsString());
}

absl::StatusOr<SmallHeader> DecodeSmallHeader(std::string_view bytes) {
  pb::SmallHeader in;
  if (absl::Status status = ParseEnvelope(RecordKind::kSmallHeader, bytes, &in);
      !status.ok()) {
    return status;
  }
  if (in.digest().size() != kDigestBytes) {
    return Fault(RecordKind::kSmallHeader, "the digest is not 16 bytes");
  }
  return SmallHeader{in.block_count(), Digest::FromBytes(in.digest())};
}

}  // namespace ckptree::schema
