// SPDX-License-Identifier: Apache-2.0

#include "schema/part_handoff.h"

#include <utility>

#include "absl/status/status.h"
#include "schema/checkpoint.pb.h"
#include "schema/envelope.h"
#include "schema/fault.h"
#include "schema/keys.h"
#include "schema/segment_record.h"

namespace ckptree::schema {
namespace {

absl::Status HandoffFault(std::string_view what) {
  return Fault(RecordKind::kPartHandoff, what);
}

}  // namespace

std::string EncodePartHandoff(const PartHandoff& handoff) {
  pb::PartHandoff out;
  out.set_step_record(EncodeStepRecord(handoff.record));
  out.set_dead_list(EncodeDeadList(handoff.dead));
  out.set_tree_root(handoff.tree_root);
  for (const std::string& page : handoff.tree_pages) out.add_tree_pages(page);
  for (const auto& [key, row] : handoff.segments) {
    out.add_segment_keys(key);
    out.add_segment_rows(row);
  }
  for (const auto& [key, value] : handoff.small) {
    out.add_small_keys(key);
    out.add_small_values(value);
  }
  return Envelope(RecordKind::kPartHandoff, out.SerializeAsString());
}

absl::StatusOr<PartHandoff> DecodePartHandoff(std::string_view bytes) {
  pb::PartHandoff in;
  if (absl::Status status = ParseEnvelope(RecordKind::kPartHandoff, bytes, &in);
      !status.ok()) {
    return status;
  }
  PartHandoff handoff;
  auto record = DecodeStepRecord(in.step_record());
  if (!record.ok()) return record.status();
  handoff.record = *std::move(record);
  auto dead = DecodeDeadList(in.dead_list());
  if (!dead.ok()) return dead.status();
  handoff.dead = *std::move(dead);
  if (handoff.record.parts.size() != 1 || handoff.record.parts_in_meta) {
    return HandoffFault("it is not of exactly one part");
  }
  const std::uint16_t part = handoff.record.parts.front().part;
  if (handoff.dead.parts.size() > 1 ||
      (!handoff.dead.parts.empty() && handoff.dead.parts[0].part != part)) {
    return HandoffFault("its dead list is of another part");
  }
  handoff.tree_root = in.tree_root();
  if (base::DigestOf(handoff.tree_root) != handoff.record.parts.front().tree) {
    return HandoffFault("its tree is not the one that the part names");
  }
  handoff.tree_pages.assign(in.tree_pages().begin(), in.tree_pages().end());
  if (in.segment_keys_size() != in.segment_rows_size() ||
      in.small_keys_size() != in.small_values_size()) {
    return HandoffFault("a key without a value");
  }
  for (int i = 0; i < in.segment_keys_size(); ++i) {
    const auto fields = DecodeSegmentKey(in.segment_keys(i));
    if (!fields.has_value() || fields->part != part ||
        fields->version != handoff.record.version) {
      return HandoffFault("a segment is of another part");
    }
    if (auto row = DecodeSegmentRow(in.segment_rows(i)); !row.ok()) {
      return row.status();
    }
    handoff.segments.emplace_back(in.segment_keys(i), in.segment_rows(i));
  }
  for (int i = 0; i < in.small_keys_size(); ++i) {
    const auto fields = DecodeSmallKey(in.small_keys(i));
    if (!fields.has_value() || fields->part != part ||
        fields->version != handoff.record.version) {
      return HandoffFault("a small block is of another part");
    }
    handoff.small.emplace_back(in.small_keys(i), in.small_values(i));
  }
  return handoff;
}

}  // namespace ckptree::schema
