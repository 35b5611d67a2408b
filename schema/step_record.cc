// SPDX-License-Identifier: Apache-2.0

#include "schema/step_record.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "base/digest.h"
#include "google/protobuf/arena.h"
#include "schema/checkpoint.pb.h"
#include "schema/envelope.h"
#include "schema/fault.h"
#include "schema/leaf_map.h"
#include "schema/limits.h"

namespace ckptree::schema {
namespace {

using base::kDigestBytes;

bool LongerThan(std::string_view text, std::int64_t limit) {
  return static_cast<std::int64_t>(text.size()) > limit;
}

// The message of a fault; empty where there is none.
std::string NameFault(std::string_view what, std::string_view name) {
  if (name.empty()) return absl::StrFormat("the name of a %s is empty", what);
  if (LongerThan(name, kMaxNameBytes)) {
    return absl::StrFormat("the name of a %s has %d bytes, at most %d", what,
                           name.size(), kMaxNameBytes);
  }
  return "";
}

// The same for a list of pairs with names, each of which may stand once.
template <typename Pairs>
std::string NamesFault(std::string_view what, const Pairs& pairs) {
  std::vector<std::string_view> names;
  for (const auto& [name, value] : pairs) {
    if (std::string fault = NameFault(what, name); !fault.empty()) return fault;
    names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) {
    return absl::StrFormat("the %s %s is there twice", what, *twice);
  }
  return "";
}

std::string PartsFault(const std::vector<PartRecord>& parts) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].part >= kMaxParts) {
      return absl::StrFormat("part %d, the last can be %d", parts[i].part,
                             kMaxParts - 1);
    }
    if (i > 0 && parts[i - 1].part >= parts[i].part) {
      return absl::StrFormat("part %d does not ascend", parts[i].part);
    }
  }
  return "";
}

template <typename Message>
void EncodeParts(const std::vector<PartRecord>& parts, Message* out) {
  for (const PartRecord& part : parts) {
    pb::PartRecord* added = out->add_parts();
    added->set_part(part.part);
    added->set_tree(part.tree.view().data(), kDigestBytes);
    added->set_map(part.map.bytes());
  }
}

template <typename Parts>
absl::Status DecodeParts(RecordKind kind, const Parts& in,
                         std::vector<PartRecord>* out) {
  if (in.size() > kMaxParts) {
    return Fault(kind, absl::StrFormat("%d parts", in.size()));
  }
  out->reserve(static_cast<std::size_t>(in.size()));
  for (const pb::PartRecord& part : in) {
    if (part.part() >= static_cast<std::uint32_t>(kMaxParts)) {
      return Fault(kind, absl::StrFormat("part %d", part.part()));
    }
    if (part.tree().size() != kDigestBytes) {
      return Fault(kind, absl::StrFormat("part %d: the tree is not 16 bytes",
                                         part.part()));
    }
    absl::StatusOr<PackedLeafMap> map = PackedLeafMap::Of(part.map());
    if (!map.ok()) {
      return Fault(kind, absl::StrFormat("part %d: %s", part.part(),
                                         map.status().message()));
    }
    out->push_back({static_cast<std::uint16_t>(part.part()),
                    base::Digest::FromBytes(part.tree()), *std::move(map)});
  }
  return absl::OkStatus();
}

// All of the message but for its parts.
void EncodeFields(const StepRecord& record, pb::StepRecord* out) {
  out->set_version(record.version);
  out->set_base(record.base);
  out->set_branch(record.branch);
  out->set_step(record.step);
  out->set_parts_in_meta(record.parts_in_meta);
  out->set_begun_ns(record.begun_ns);
  out->set_staged_ns(record.staged_ns);
  out->set_committed_ns(record.committed_ns);
  for (const auto& [name, value] : record.metrics) {
    pb::Metric* metric = out->add_metrics();
    metric->set_name(name);
    metric->set_value(value);
  }
  out->set_leaf_count(record.leaf_count);
  out->set_changed_leaves(record.changed_leaves);
  out->set_logical_bytes(record.logical_bytes);
  out->set_new_bytes(record.new_bytes);
  out->set_nan_count(record.nan_count);
  out->set_inf_count(record.inf_count);
  out->set_nonfinite_leaves(record.nonfinite_leaves);
  out->set_unknown_leaves(record.unknown_leaves);
  out->set_digest(record.digest.view().data(), kDigestBytes);
  out->set_saved_by(record.saved_by);
  out->set_note(record.note);
}

// `encoded` is at least its bytes where it was decoded from that many.
std::string StepFault(const StepRecord& record,
                      std::optional<std::size_t> encoded = std::nullopt) {
  if (record.version == 0) return "it is of version 0";
  if (record.base >= record.version) {
    return absl::StrFormat("version %d has the base %d", record.version,
                           record.base);
  }
  if (record.parts_in_meta && !record.parts.empty()) {
    return "parts both here and in the step meta";
  }
  if (record.metrics.size() > static_cast<std::size_t>(kMaxMetrics)) {
    return absl::StrFormat("%d metrics, at most %d", record.metrics.size(),
                           kMaxMetrics);
  }
  if (std::string fault = NamesFault("metric", record.metrics);
      !fault.empty()) {
    return fault;
  }
  if (LongerThan(record.note, kMaxNoteBytes)) {
    return absl::StrFormat("a note of %d bytes, at most %d", record.note.size(),
                           kMaxNoteBytes);
  }
  if (LongerThan(record.saved_by, kMaxNameBytes)) {
    return "the name of the engine is too long";
  }
  if (record.changed_leaves > record.leaf_count ||
      record.nonfinite_leaves > record.leaf_count ||
      record.unknown_leaves > record.leaf_count) {
    return "more leaves of one sort than leaves";
  }
  if (!encoded.has_value() ||
      static_cast<std::int64_t>(*encoded) > kMaxStepRecordBytes) {
    pb::StepRecord fields;
    EncodeFields(record, &fields);
    if (const std::size_t size = fields.ByteSizeLong();
        static_cast<std::int64_t>(size) > kMaxStepRecordBytes) {
      return absl::StrFormat("%d bytes with its metrics and note, at most %d",
                             size, kMaxStepRecordBytes);
    }
  }
  return PartsFault(record.parts);
}

std::string MetaFault(const StepMeta& meta) {
  if (std::string fault = NamesFault("item", meta.items); !fault.empty()) {
    return fault;
  }
  for (const auto& [name, kind] : meta.items) {
    if (Name(kind) == "unknown") {
      return absl::StrFormat("the item %s has the unknown kind %d", name,
                             static_cast<int>(kind));
    }
  }
  if (std::string fault = NamesFault("line of lineage", meta.lineage);
      !fault.empty()) {
    return fault;
  }
  if (LongerThan(meta.custom_metadata, kMaxCustomMetadataBytes)) {
    return absl::StrFormat("custom metadata of %d bytes, at most %d",
                           meta.custom_metadata.size(),
                           kMaxCustomMetadataBytes);
  }
  for (std::size_t i = 0; i < meta.origins.size(); ++i) {
    if (meta.origins[i].part >= kMaxParts ||
        (i > 0 && meta.origins[i].part <= meta.origins[i - 1].part)) {
      return "the origins of its parts do not ascend";
    }
    if (LongerThan(meta.origins[i].host, kMaxNameBytes)) {
      return "the name of a host is too long";
    }
  }
  return PartsFault(meta.parts);
}

// Most parts are of few hosts.
void EncodeOrigins(const std::vector<PartOrigin>& origins, pb::StepMeta* out) {
  if (origins.empty()) return;
  pb::PartOrigins& columns = *out->mutable_origins();
  std::map<std::string_view, std::uint32_t> hosts;
  for (const PartOrigin& origin : origins) {
    const auto [host, fresh] = hosts.try_emplace(
        origin.host, static_cast<std::uint32_t>(hosts.size()));
    if (fresh) columns.add_host_table(origin.host);
    columns.add_part(origin.part);
    columns.add_host(host->second);
    columns.add_pid(origin.pid);
    columns.add_nonce(origin.nonce);
    columns.add_bytes(origin.bytes);
    columns.add_new_bytes(origin.new_bytes);
    columns.add_nanoseconds(origin.nanoseconds);
  }
}

// What is wrong with them, or nothing.
std::string DecodeOrigins(const pb::PartOrigins& columns,
                          std::vector<PartOrigin>* origins) {
  const int count = columns.part_size();
  for (const int size :
       {columns.host_size(), columns.pid_size(), columns.nonce_size(),
        columns.bytes_size(), columns.new_bytes_size(),
        columns.nanoseconds_size()}) {
    if (size != count) return "the origins of its parts have gaps";
  }
  for (int i = 0; i < count; ++i) {
    if (columns.part(i) >= static_cast<std::uint32_t>(kMaxParts) ||
        columns.host(i) >=
            static_cast<std::uint32_t>(columns.host_table_size())) {
      return "the origin of a part is out of bounds";
    }
    PartOrigin& origin = origins->emplace_back();
    origin.part = static_cast<std::uint16_t>(columns.part(i));
    origin.host = columns.host_table(static_cast<int>(columns.host(i)));
    origin.pid = columns.pid(i);
    origin.nonce = columns.nonce(i);
    origin.bytes = columns.bytes(i);
    origin.new_bytes = columns.new_bytes(i);
    origin.nanoseconds = columns.nanoseconds(i);
  }
  return "";
}

}  // namespace

std::string_view Name(ItemKind kind) {
  switch (kind) {
    case ItemKind::kTree:
      return "tree";
    case ItemKind::kJson:
      return "json";
    case ItemKind::kProto:
      return "proto";
    case ItemKind::kFiles:
      return "files";
  }
  return "unknown";
}

void PlaceParts(StepRecord* record, StepMeta* meta) {
  pb::StepRecord table;
  EncodeParts(record->parts, &table);
  record->parts_in_meta = table.ByteSizeLong() > kMaxPartTableBytes;
  if (!record->parts_in_meta) return;
  meta->parts = std::move(record->parts);
  record->parts.clear();
}

absl::Status Validate(const StepRecord& record) {
  const std::string fault = StepFault(record);
  if (fault.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("step: %s", fault));
}

absl::Status Validate(const StepMeta& meta) {
  const std::string fault = MetaFault(meta);
  if (fault.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("step: %s", fault));
}

std::string EncodeStepRecord(const StepRecord& record) {
  pb::StepRecord out;
  EncodeFields(record, &out);
  EncodeParts(record.parts, &out);
  return EnvelopeOf(RecordKind::kStep, out);
}

// Hot path: per step when a store is opened.
absl::StatusOr<StepRecord> DecodeStepRecord(std::string_view bytes) {
  std::array<char, 2048> first;  // Most have room here.
  google::protobuf::ArenaOptions options;
  options.initial_block = first.data();
  options.initial_block_size = first.size();
  google::protobuf::Arena arena(options);
  pb::StepRecord& in =
      *google::protobuf::Arena::CreateMessage<pb::StepRecord>(&arena);
  if (absl::Status status = ParseEnvelope(RecordKind::kStep, bytes, &in);
      !status.ok()) {
    return status;
  }
  if (in.digest().size() != kDigestBytes) {
    return Fault(RecordKind::kStep, "the digest is not 16 bytes");
  }
  StepRecord record;
  record.version = in.version();
  record.base = in.base();
  record.branch = in.branch();
  record.step = in.step();
  record.parts_in_meta = in.parts_in_meta();
  if (absl::Status status =
          DecodeParts(RecordKind::kStep, in.parts(), &record.parts);
      !status.ok()) {
    return status;
  }
  record.begun_ns = in.begun_ns();
  record.staged_ns = in.staged_ns();
  record.committed_ns = in.committed_ns();
  for (const pb::Metric& metric : in.metrics()) {
    record.metrics.emplace_back(metric.name(), metric.value());
  }
  record.leaf_count = in.leaf_count();
  record.changed_leaves = in.changed_leaves();
  record.logical_bytes = in.logical_bytes();
  record.new_bytes = in.new_bytes();
  record.nan_count = in.nan_count();
  record.inf_count = in.inf_count();
  record.nonfinite_leaves = in.nonfinite_leaves();
  record.unknown_leaves = in.unknown_leaves();
  record.digest = base::Digest::FromBytes(in.digest());
  record.saved_by = in.saved_by();
  record.note = in.note();
  if (const std::string fault = StepFault(record, bytes.size());
      !fault.empty()) {
    return Fault(RecordKind::kStep, fault);
  }
  return record;
}

std::string EncodeStepMeta(const StepMeta& meta) {
  pb::StepMeta out;
  EncodeParts(meta.parts, &out);
  for (const auto& [name, kind] : meta.items) {
    pb::Item* item = out.add_items();
    item->set_name(name);
    item->set_kind(static_cast<std::uint32_t>(kind));
  }
  out.set_custom_metadata(meta.custom_metadata);
  for (const auto& [name, value] : meta.lineage) {
    pb::Lineage* line = out.add_lineage();
    line->set_name(name);
    line->set_value(value);
  }
  EncodeOrigins(meta.origins, &out);
  return EnvelopeOf(RecordKind::kStepMeta, out);
}

absl::StatusOr<StepMeta> DecodeStepMeta(std::string_view bytes) {
  pb::StepMeta in;
  if (absl::Status status = ParseEnvelope(RecordKind::kStepMeta, bytes, &in);
      !status.ok()) {
    return status;
  }
  StepMeta meta;
  if (absl::Status status =
          DecodeParts(RecordKind::kStepMeta, in.parts(), &meta.parts);
      !status.ok()) {
    return status;
  }
  for (const pb::Item& item : in.items()) {
    // A number above 255 must not turn into a known one.
    const std::uint32_t kind = std::min(item.kind(), 255u);
    meta.items.emplace_back(item.name(), static_cast<ItemKind>(kind));
  }
  meta.custom_metadata = in.custom_metadata();
  for (const pb::Lineage& line : in.lineage()) {
    meta.lineage.emplace_back(line.name(), line.value());
  }
  if (const std::string fault = DecodeOrigins(in.origins(), &meta.origins);
      !fault.empty()) {
    return Fault(RecordKind::kStepMeta, fault);
  }
  if (const std::string fault = MetaFault(meta); !fault.empty()) {
    return Fault(RecordKind::kStepMeta, fault);
  }
  return meta;
}

}  // namespace ckptree::schema
