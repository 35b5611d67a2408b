// SPDX-License-Identifier: Apache-2.0

#include "schema/remote_record.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
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
// No file system has as many in one file: sums with it do not overflow.
constexpr std::uint64_t kMostSegmentBytes = std::uint64_t{1} << 50;

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

// `numbers` are left out where they count from 1.
void EncodeBlocks(const std::vector<RemoteBlock>& blocks,
                  pb::RemoteSegment* out) {
  bool counts = true;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    counts = counts && blocks[i].sequence == i + 1;
  }
  std::uint32_t sequence = 0;
  std::uint64_t end = 0;
  for (const RemoteBlock& block : blocks) {
    if (!counts) out->add_block_numbers(block.sequence - sequence);
    out->add_block_gaps(block.offset - end);
    out->add_block_bytes(block.bytes);
    sequence = block.sequence;
    end = block.offset + block.bytes;
  }
}

void EncodeSegment(const RemoteSegment& segment, pb::RemoteSegment* out) {
  out->set_version(segment.segment.version);
  out->set_part(segment.segment.part);
  out->set_space(static_cast<std::uint32_t>(segment.segment.space));
  out->set_builder(segment.segment.builder);
  out->set_attempt(segment.attempt);
  out->set_bytes(segment.bytes);
  out->set_digest(segment.digest.view().data(), kDigestBytes);
  EncodeBlocks(segment.blocks, out);
}

absl::StatusOr<std::vector<RemoteBlock>> DecodeBlocks(
    RecordKind kind, const pb::RemoteSegment& in) {
  const int count = in.block_bytes_size();
  const bool numbered = in.block_numbers_size() != 0;
  if (in.block_gaps_size() != count ||
      (numbered && in.block_numbers_size() != count) ||
      (count != 0 &&
       in.space() != static_cast<std::uint32_t>(Space::kChunks))) {
    return Fault(kind, "blocks of a segment that cannot be");
  }
  std::vector<RemoteBlock> blocks;
  blocks.reserve(static_cast<std::size_t>(count));
  std::uint64_t sequence = 0;
  std::uint64_t end = 0;
  for (int i = 0; i < count; ++i) {
    const std::uint64_t step = numbered ? in.block_numbers(i) : 1;
    sequence += step;
    if (step == 0 || sequence >= kTableSequence ||
        in.block_gaps(i) > in.bytes() - end ||
        in.block_bytes(i) > in.bytes() - end - in.block_gaps(i)) {
      return Fault(kind, "blocks of a segment that cannot be");
    }
    blocks.push_back({static_cast<std::uint32_t>(sequence),
                      end + in.block_gaps(i), in.block_bytes(i)});
    end = blocks.back().offset + blocks.back().bytes;
  }
  return blocks;
}

absl::StatusOr<RemoteSegment> DecodeSegment(RecordKind kind,
                                            const pb::RemoteSegment& in) {
  const bool holds_segments =
      in.space() == static_cast<std::uint32_t>(Space::kLeaves) ||
      in.space() == static_cast<std::uint32_t>(Space::kChunks);
  if (in.version() == 0 || !holds_segments || in.builder() > 0xff ||
      in.part() >= static_cast<std::uint32_t>(kMaxParts)) {
    return Fault(kind, "a segment that cannot be");
  }
  if (in.attempt().size() != kRemoteIdBytes ||
      in.digest().size() != kDigestBytes || in.bytes() == 0) {
    return Fault(kind, "a segment without its attempt, bytes or digest");
  }
  if (in.bytes() > kMostSegmentBytes) {
    return Fault(kind, "a segment of more bytes than can be");
  }
  RemoteSegment segment;
  segment.segment = {in.version(), static_cast<std::uint16_t>(in.part()),
                     static_cast<Space>(in.space()),
                     static_cast<std::uint8_t>(in.builder())};
  segment.attempt = in.attempt();
  segment.bytes = in.bytes();
  segment.digest = base::Digest::FromBytes(in.digest());
  CKPTREE_ASSIGN_OR_RETURN(segment.blocks, DecodeBlocks(kind, in));
  return segment;
}

void EncodeRowsObject(const RemoteRowsObject& object,
                      pb::RemoteRowsObject* out) {
  out->set_attempt(object.attempt);
  out->set_bytes(object.bytes);
  out->set_digest(object.digest.view().data(), kDigestBytes);
}

absl::StatusOr<RemoteRowsObject> DecodeRowsObject(
    RecordKind kind, const pb::RemoteRowsObject& in) {
  if (in.attempt().size() != kRemoteIdBytes ||
      in.digest().size() != kDigestBytes || in.bytes() == 0 ||
      in.bytes() > static_cast<std::uint64_t>(kMaxRecordBytes)) {
    return Fault(kind, "an object of rows that cannot be");
  }
  return RemoteRowsObject{in.attempt(), in.bytes(),
                          base::Digest::FromBytes(in.digest())};
}

void EncodeLiving(const RemoteLiving& living, pb::RemoteLiving* out) {
  EncodeSegment(living.segment, out->mutable_segment());
  out->set_era(living.era);
}

absl::StatusOr<RemoteLiving> DecodeLiving(RecordKind kind,
                                          const pb::RemoteLiving& in) {
  RemoteLiving living;
  CKPTREE_ASSIGN_OR_RETURN(living.segment, DecodeSegment(kind, in.segment()));
  if (in.era() == 0) return Fault(kind, "a segment of no era");
  living.era = in.era();
  return living;
}

void EncodeRun(const RemoteRun& run, pb::RemoteRun* out) {
  for (const RemoteRow& row : run.rows) EncodeRow(row, out->add_rows());
  for (const RemoteLiving& living : run.segments) {
    EncodeLiving(living, out->add_segments());
  }
}

absl::StatusOr<RemoteRun> DecodeRun(RecordKind kind, const pb::RemoteRun& in) {
  RemoteRun run;
  CKPTREE_RETURN_IF_ERROR(DecodeRows(kind, in.rows(), &run.rows));
  for (std::size_t i = 1; i < run.rows.size(); ++i) {
    const RemoteRow& before = run.rows[i - 1];
    const RemoteRow& row = run.rows[i];
    if (std::tie(before.space, before.key) >= std::tie(row.space, row.key)) {
      return Fault(kind, "its rows do not ascend");
    }
  }
  for (const pb::RemoteLiving& living : in.segments()) {
    CKPTREE_ASSIGN_OR_RETURN(RemoteLiving decoded, DecodeLiving(kind, living));
    run.segments.push_back(std::move(decoded));
  }
  return run;
}

}  // namespace

std::string EncodeFarSegment(const FarSegment& far) {
  pb::FarSegment out;
  EncodeLiving(far.living, out.mutable_living());
  out.set_address(far.address);
  return EnvelopeOf(RecordKind::kFarSegment, out);
}

absl::StatusOr<FarSegment> DecodeFarSegment(std::string_view bytes) {
  constexpr RecordKind kKind = RecordKind::kFarSegment;
  pb::FarSegment in;
  CKPTREE_RETURN_IF_ERROR(ParseEnvelope(kKind, bytes, &in));
  FarSegment far;
  CKPTREE_ASSIGN_OR_RETURN(far.living, DecodeLiving(kKind, in.living()));
  if (far.living.segment.segment.space != Space::kChunks) {
    return Fault(kKind, "a segment that is never elsewhere");
  }
  if (in.address().empty()) return Fault(kKind, "it has no address");
  far.address = in.address();
  return far;
}

std::string EncodeRemoteStore(const RemoteStore& store) {
  pb::RemoteStore out;
  out.set_uuid(store.uuid);
  out.set_created_by(store.created_by);
  return EnvelopeOf(RecordKind::kRemoteStore, out);
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
  return EnvelopeOf(RecordKind::kRemoteRows, out);
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
    EncodeRowsObject(object, out.add_rows_objects());
  }
  for (const RemoteSegment& segment : commit.segments) {
    EncodeSegment(segment, out.add_segments());
  }
  return EnvelopeOf(RecordKind::kRemoteCommit, out);
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
    CKPTREE_ASSIGN_OR_RETURN(
        RemoteRowsObject decoded,
        DecodeRowsObject(RecordKind::kRemoteCommit, object));
    commit.rows_objects.push_back(std::move(decoded));
  }
  for (const pb::RemoteSegment& segment : in.segments()) {
    CKPTREE_ASSIGN_OR_RETURN(RemoteSegment decoded,
                             DecodeSegment(RecordKind::kRemoteCommit, segment));
    commit.segments.push_back(std::move(decoded));
  }
  return commit;
}

std::string EncodeRemoteRun(const RemoteRun& run) {
  pb::RemoteRun out;
  EncodeRun(run, &out);
  return EnvelopeOf(RecordKind::kRemoteRun, out);
}

absl::StatusOr<RemoteRun> DecodeRemoteRun(std::string_view bytes) {
  pb::RemoteRun in;
  CKPTREE_RETURN_IF_ERROR(ParseEnvelope(RecordKind::kRemoteRun, bytes, &in));
  return DecodeRun(RecordKind::kRemoteRun, in);
}

std::string EncodeRemoteIndex(const RemoteIndex& index) {
  pb::RemoteIndex out;
  out.set_uuid(index.uuid);
  out.set_ordinal(index.ordinal);
  out.set_hash(index.hash.view().data(), kDigestBytes);
  out.set_ceiling(index.ceiling);
  for (const RemoteDirectory& directory : index.directories) {
    pb::RemoteDirectory* const one = out.add_directories();
    one->set_local(directory.local);
    one->set_to(directory.to);
    one->set_to_at(directory.to_at);
    one->set_shipped_at(directory.shipped_at);
    one->set_host(directory.host);
    one->set_pid(directory.pid);
  }
  for (const std::vector<RemoteRunObject>& run : index.runs) {
    pb::RemoteRunObjects* const objects = out.add_runs();
    for (const RemoteRunObject& object : run) {
      pb::RemoteRunObject* const one = objects->add_objects();
      EncodeRowsObject(object.object, one->mutable_object());
      one->set_era(object.era);
    }
  }
  EncodeRun(index.newest, out.mutable_newest());
  for (const RemoteDead& dead : index.dead) {
    pb::RemoteDead* const one = out.add_dead();
    one->set_name(dead.name);
    one->set_at(dead.at);
  }
  for (const std::string& name : index.rows_objects) {
    out.add_rows_objects(name);
  }
  return EnvelopeOf(RecordKind::kRemoteIndex, out);
}

absl::StatusOr<RemoteIndex> DecodeRemoteIndex(std::string_view bytes) {
  constexpr RecordKind kKind = RecordKind::kRemoteIndex;
  pb::RemoteIndex in;
  CKPTREE_RETURN_IF_ERROR(ParseEnvelope(kKind, bytes, &in));
  if (in.uuid().size() != kUuidBytes || in.hash().size() != kDigestBytes) {
    return Fault(kKind, "an id or a hash is not 16 bytes");
  }
  RemoteIndex index;
  index.uuid = in.uuid();
  index.ordinal = in.ordinal();
  index.hash = base::Digest::FromBytes(in.hash());
  index.ceiling = in.ceiling();
  for (const pb::RemoteDirectory& directory : in.directories()) {
    if (directory.local().size() != kRemoteIdBytes ||
        (directory.to() == 0) != (directory.to_at() == 0) ||
        directory.to_at() > index.ordinal ||
        directory.shipped_at() > index.ordinal) {
      return Fault(kKind, "a directory that cannot be");
    }
    index.directories.push_back({directory.local(), directory.to(),
                                 directory.to_at(), directory.shipped_at(),
                                 directory.host(), directory.pid()});
  }
  for (const pb::RemoteRunObjects& run : in.runs()) {
    std::vector<RemoteRunObject>& objects = index.runs.emplace_back();
    for (const pb::RemoteRunObject& object : run.objects()) {
      CKPTREE_ASSIGN_OR_RETURN(RemoteRowsObject decoded,
                               DecodeRowsObject(kKind, object.object()));
      if (object.era() == 0) return Fault(kKind, "an object of no era");
      objects.push_back({std::move(decoded), object.era()});
    }
    if (objects.empty()) return Fault(kKind, "a run without objects");
  }
  CKPTREE_ASSIGN_OR_RETURN(index.newest, DecodeRun(kKind, in.newest()));
  for (const pb::RemoteDead& dead : in.dead()) {
    if (dead.name().empty() || dead.at() == 0 ||
        dead.at() > index.ordinal + 1) {
      return Fault(kKind, "a dead object that cannot be");
    }
    index.dead.push_back({dead.name(), dead.at()});
  }
  for (const std::string& name : in.rows_objects()) {
    if (name.empty()) return Fault(kKind, "an object without a name");
    index.rows_objects.push_back(name);
  }
  if (index.ordinal == 0) return Fault(kKind, "it is of no commit");
  return index;
}

}  // namespace ckptree::schema
