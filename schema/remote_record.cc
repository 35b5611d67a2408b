// SPDX-License-Identifier: Apache-2.0

#include "schema/remote_record.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "schema/envelope.h"
#include "schema/fault.h"
#include "schema/keys.h"
#include "schema/limits.h"
#include "schema/remote.pb.h"
#include "schema/spaces.h"

namespace ckptree::schema {
namespace {

using base::kDigestBytes;

// Keys from ff on are no rows.
constexpr std::string_view kEndOfRowKeys = "\xff";

void EncodeRow(const RemoteRow& row, pb::RemoteRow* out) {
  out->set_space(static_cast<std::uint32_t>(row.space));
  out->set_key(row.key);
  out->set_deleted(!row.value.has_value());
  if (row.value.has_value()) out->set_value(*row.value);
}

absl::StatusOr<RemoteRow> DecodeRow(RecordKind kind, const pb::RemoteRow& in) {
  if (in.space() != static_cast<std::uint32_t>(Space::kRecords) &&
      in.space() != static_cast<std::uint32_t>(Space::kSmall)) {
    return Fault(kind, absl::StrFormat("a row of space %d", in.space()));
  }
  if (in.key().empty() || in.key() >= kEndOfRowKeys) {
    return Fault(kind, "a row without a key");
  }
  if (in.deleted() && !in.value().empty()) {
    return Fault(kind, "a row that is deleted has a value");
  }
  RemoteRow row;
  row.space = static_cast<Space>(in.space());
  row.key = in.key();
  if (!in.deleted()) row.value = in.value();
  return row;
}

template <typename Rows>
absl::Status DecodeRows(RecordKind kind, const Rows& in,
                        std::vector<RemoteRow>* rows) {
  for (const pb::RemoteRow& row : in) {
    CKPTREE_ASSIGN_OR_RETURN(RemoteRow decoded, DecodeRow(kind, row));
    rows->push_back(std::move(decoded));
  }
  return absl::OkStatus();
}

absl::Status CommitFault(std::string_view what) {
  return Fault(RecordKind::kRemoteCommit, what);
}

absl::StatusOr<RemoteSegment> DecodeSegment(const pb::RemoteSegment& in) {
  const bool holds_segments =
      in.space() == static_cast<std::uint32_t>(Space::kLeaves) ||
      in.space() == static_cast<std::uint32_t>(Space::kChunks);
  if (in.version() == 0 || !holds_segments || in.builder() > 0xff ||
      in.part() >= static_cast<std::uint32_t>(kMaxParts)) {
    return CommitFault("a segment that cannot be");
  }
  if (in.attempt().size() != kRemoteIdBytes ||
      in.digest().size() != kDigestBytes || in.bytes() == 0) {
    return CommitFault("a segment without its attempt, bytes or digest");
  }
  RemoteSegment segment;
  segment.segment = {in.version(), static_cast<std::uint16_t>(in.part()),
                     static_cast<Space>(in.space()),
                     static_cast<std::uint8_t>(in.builder())};
  segment.attempt = in.attempt();
  segment.bytes = in.bytes();
  segment.digest = base::Digest::FromBytes(in.digest());
  return segment;
}

}  // namespace

std::string EncodeRemoteStore(const RemoteStore& store) {
  pb::RemoteStore out;
  out.set_uuid(store.uuid);
  out.set_created_by(store.created_by);
  return Envelope(RecordKind::kRemoteStore, out.SerializeAsString());
}

absl::StatusOr<RemoteStore> DecodeRemoteStore(std::string_view bytes) {
  pb::RemoteStore in;
  CKPTREE_RETURN_IF_ERROR(ParseEnvelope(RecordKind::kRemoteStore, bytes, &in));
  if (in.uuid().size() != kUuidBytes) {
    return Fault(RecordKind::kRemoteStore, "the uuid is not 16 bytes");
  }
  return RemoteStore{in.uuid(), in.created_by()};
}

std::string EncodeRemoteRows(const std::vector<RemoteRow>& rows) {
  pb::RemoteRows out;
  for (const RemoteRow& row : rows) EncodeRow(row, out.add_rows());
  return Envelope(RecordKind::kRemoteRows, out.SerializeAsString());
}

absl::StatusOr<std::vector<RemoteRow>> DecodeRemoteRows(
    std::string_view bytes) {
  pb::RemoteRows in;
  CKPTREE_RETURN_IF_ERROR(ParseEnvelope(RecordKind::kRemoteRows, bytes, &in));
  std::vector<RemoteRow> rows;
  CKPTREE_RETURN_IF_ERROR(
      DecodeRows(RecordKind::kRemoteRows, in.rows(), &rows));
  return rows;
}

std::string EncodeRemoteCommit(const RemoteCommit& commit) {
  pb::RemoteCommit out;
  out.set_shape(static_cast<std::uint32_t>(commit.shape));
  out.set_uuid(commit.uuid);
  out.set_ordinal(commit.ordinal);
  out.set_before(commit.before.view().data(), kDigestBytes);
  out.set_write_id(commit.write_id);
  out.set_era(commit.era);
  out.set_local(commit.local);
  out.set_from(commit.from);
  out.set_to(commit.to);
  out.set_ceiling(commit.ceiling);
  out.set_made_ns(commit.made_ns);
  out.set_host(commit.host);
  out.set_pid(commit.pid);
  for (const RemoteRow& row : commit.rows) EncodeRow(row, out.add_rows());
  for (const RemoteRowsObject& object : commit.rows_objects) {
    pb::RemoteRowsObject* const one = out.add_rows_objects();
    one->set_attempt(object.attempt);
    one->set_bytes(object.bytes);
    one->set_digest(object.digest.view().data(), kDigestBytes);
  }
  for (const RemoteSegment& segment : commit.segments) {
    pb::RemoteSegment* const one = out.add_segments();
    one->set_version(segment.segment.version);
    one->set_part(segment.segment.part);
    one->set_space(static_cast<std::uint32_t>(segment.segment.space));
    one->set_builder(segment.segment.builder);
    one->set_attempt(segment.attempt);
    one->set_bytes(segment.bytes);
    one->set_digest(segment.digest.view().data(), kDigestBytes);
  }
  return Envelope(RecordKind::kRemoteCommit, out.SerializeAsString());
}

absl::StatusOr<RemoteCommit> DecodeRemoteCommit(std::string_view bytes) {
  pb::RemoteCommit in;
  CKPTREE_RETURN_IF_ERROR(ParseEnvelope(RecordKind::kRemoteCommit, bytes, &in));
  if (in.shape() < 1 || in.shape() > 3) {
    return CommitFault(absl::StrFormat("shape %d", in.shape()));
  }
  if (in.uuid().size() != kUuidBytes || in.before().size() != kDigestBytes ||
      in.write_id().size() != kRemoteIdBytes ||
      in.local().size() != kRemoteIdBytes) {
    return CommitFault("an id or a hash is not 16 bytes");
  }
  RemoteCommit commit;
  commit.shape = static_cast<RemoteCommit::Shape>(in.shape());
  commit.uuid = in.uuid();
  commit.ordinal = in.ordinal();
  commit.before = base::Digest::FromBytes(in.before());
  commit.write_id = in.write_id();
  commit.era = in.era();
  commit.local = in.local();
  commit.from = in.from();
  commit.to = in.to();
  commit.ceiling = in.ceiling();
  commit.made_ns = in.made_ns();
  commit.host = in.host();
  commit.pid = in.pid();
  const bool is_open = commit.shape == RemoteCommit::Shape::kOpen;
  if (commit.ordinal == 0 ||
      (is_open ? commit.era != commit.ordinal
               : commit.era == 0 || commit.era >= commit.ordinal)) {
    return CommitFault(
        absl::StrFormat("ordinal %d in era %d", commit.ordinal, commit.era));
  }
  if ((commit.ordinal == 1) != (commit.before == base::Digest())) {
    return CommitFault("only the first follows none");
  }
  const bool ships = commit.shape == RemoteCommit::Shape::kShip;
  if (ships ? commit.from >= commit.to : commit.from != commit.to) {
    return CommitFault(
        absl::StrFormat("local commits %d to %d", commit.from, commit.to));
  }
  if (!ships && (in.rows_size() != 0 || in.rows_objects_size() != 0 ||
                 in.segments_size() != 0)) {
    return CommitFault("one that ships nothing has rows or segments");
  }
  CKPTREE_RETURN_IF_ERROR(
      DecodeRows(RecordKind::kRemoteCommit, in.rows(), &commit.rows));
  for (const pb::RemoteRowsObject& object : in.rows_objects()) {
    if (object.attempt().size() != kRemoteIdBytes ||
        object.digest().size() != kDigestBytes || object.bytes() == 0 ||
        object.bytes() > static_cast<std::uint64_t>(kMaxRecordBytes)) {
      return CommitFault("an object of rows that cannot be");
    }
    commit.rows_objects.push_back({object.attempt(), object.bytes(),
                                   base::Digest::FromBytes(object.digest())});
  }
  for (const pb::RemoteSegment& segment : in.segments()) {
    CKPTREE_ASSIGN_OR_RETURN(RemoteSegment decoded, DecodeSegment(segment));
    commit.segments.push_back(std::move(decoded));
  }
  return commit;
}

}  // namespace ckptree::schema
