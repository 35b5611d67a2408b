// SPDX-License-Identifier: Apache-2.0

#include "schema/part_handoff.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "schema/checkpoint.pb.h"
#include "schema/envelope.h"
#include "schema/fault.h"
#include "schema/keys.h"
#include "schema/limits.h"
#include "schema/segment_record.h"

namespace ckptree::schema {
namespace {

absl::Status HandoffFault(std::string_view what) {
  return Fault(RecordKind::kPartHandoff, what);
}

constexpr std::size_t kReplicatedBytes = 16;  // Per leaf.

void EncodeLayout(const PartLayout& layout, pb::PartHandoff* out) {
  out->set_same_layout(layout.as_base);
  for (const BoxedLeaf& leaf : layout.boxed) {
    out->add_boxed(leaf.ordinal);
    out->add_box_count(static_cast<std::uint32_t>(leaf.boxes.size()));
    for (const Box& box : leaf.boxes) {
      out->add_box_dims(box.start.size());
      for (const auto* dims : {&box.start, &box.shape}) {
        for (const std::int64_t dim : *dims) {
          out->add_box_dims(static_cast<std::uint64_t>(dim));
        }
      }
    }
  }
  out->set_replicated(layout.replicated);
  for (const std::string& name : layout.names) out->add_names(name);
  for (const auto& [path, target] : layout.ties) {
    out->add_ties(path);
    out->add_ties(target);
  }
  if (layout.split.count == 0) return;
  out->set_split(layout.split.count);
  out->set_split_names(std::string(layout.split.names.view()));
  out->set_split_changed(layout.split.changed);
  out->set_split_nonfinite(layout.split.nonfinite);
  out->set_split_unknown(layout.split.unknown);
}

absl::Status DecodeSplit(const pb::PartHandoff& in, SplitLeaves* split) {
  const auto named = static_cast<std::size_t>(in.split() == 0 ? 0 : 1);
  if (in.split() > kMaxLeaves ||
      in.split_names().size() != named * base::kDigestBytes) {
    return HandoffFault("its leaves among others have no names");
  }
  for (const std::string* bits :
       {&in.split_changed(), &in.split_nonfinite(), &in.split_unknown()}) {
    if (bits->empty()) continue;
    const std::size_t most = (std::size_t{in.split()} + 7) / 8;
    const auto last = static_cast<unsigned char>(bits->back());
    const unsigned beyond = in.split() % 8 == 0 ? 8 : in.split() % 8;
    if (bits->size() > most || last == 0 ||
        (bits->size() == most && last >> beyond != 0)) {
      return HandoffFault("bits of no leaf among others");
    }
  }
  if (in.split() == 0) return absl::OkStatus();
  split->count = in.split();
  split->names = base::Digest::FromBytes(in.split_names());
  split->changed = in.split_changed();
  split->nonfinite = in.split_nonfinite();
  split->unknown = in.split_unknown();
  return absl::OkStatus();
}

// The boxes are those of a rank that the tree gives: the engine compares.
absl::Status DecodeLayout(const pb::PartHandoff& in, PartLayout* layout) {
  layout->as_base = in.same_layout();
  if (in.boxed_size() != in.box_count_size()) {
    return HandoffFault("leaves without boxes");
  }
  std::uint64_t boxes = 0;
  for (const std::uint32_t count : in.box_count()) boxes += count;
  const auto dims = static_cast<std::uint64_t>(in.box_dims_size());
  if (boxes > dims / 2 && boxes != 0) return HandoffFault("boxes are missing");
  int at = 0;
  for (int i = 0; i < in.boxed_size(); ++i) {
    BoxedLeaf& leaf = layout->boxed.emplace_back();
    leaf.ordinal = in.boxed(i);
    if (i > 0 && leaf.ordinal <= in.boxed(i - 1)) {
      return HandoffFault("its leaves with boxes do not ascend");
    }
    for (std::uint32_t b = 0; b < in.box_count(i); ++b) {
      if (at == in.box_dims_size()) return HandoffFault("boxes are missing");
      const std::uint64_t rank = in.box_dims(at++);
      if (rank > static_cast<std::uint64_t>(kMaxDims) ||
          2 * rank > static_cast<std::uint64_t>(in.box_dims_size() - at)) {
        return HandoffFault("a box is cut off");
      }
      Box& box = leaf.boxes.emplace_back();
      for (auto* side : {&box.start, &box.shape}) {
        for (std::uint64_t d = 0; d < rank; ++d) {
          side->push_back(static_cast<std::int64_t>(in.box_dims(at++)));
          if (side->back() < 0) return HandoffFault("a box is negative");
        }
      }
    }
  }
  if (at != in.box_dims_size()) return HandoffFault("boxes of no leaf");
  if (in.replicated().size() % kReplicatedBytes != 0) {
    return HandoffFault("the checksums of what all ranks have are cut off");
  }
  layout->replicated = in.replicated();
  layout->names.assign(in.names().begin(), in.names().end());
  if (in.ties_size() % 2 != 0) return HandoffFault("a tie to nothing");
  for (int i = 0; i < in.ties_size(); i += 2) {
    layout->ties.emplace_back(in.ties(i), in.ties(i + 1));
  }
  return DecodeSplit(in, &layout->split);
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
  out.set_coded(handoff.coded);
  if (!handoff.uploaded.empty()) {
    out.set_uploaded(EncodeRemoteRun({{}, handoff.uploaded}));
  }
  out.set_attempt(handoff.attempt);
  out.set_session(handoff.session);
  out.set_world(handoff.world);
  out.set_nonce(handoff.nonce);
  out.set_host(handoff.host);
  out.set_pid(handoff.pid);
  out.set_nanoseconds(handoff.nanoseconds);
  EncodeLayout(handoff.layout, &out);
  return EnvelopeOf(RecordKind::kPartHandoff, out);
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
  handoff.coded = in.coded();
  handoff.tree_root = in.tree_root();
  if (handoff.tree_root.empty() && handoff.record.base == 0) {
    return HandoffFault("it has neither a tree nor a base");
  }
  if (!handoff.tree_root.empty() &&
      base::DigestOf(handoff.tree_root) != handoff.record.parts.front().tree) {
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
  if (!in.uploaded().empty()) {
    auto run = DecodeRemoteRun(in.uploaded());
    if (!run.ok()) return run.status();
    handoff.uploaded = std::move(run->segments);
    bool same =
        run->rows.empty() && handoff.uploaded.size() == handoff.segments.size();
    for (std::size_t i = 0; same && i < handoff.uploaded.size(); ++i) {
      const SegmentKeyFields& of = handoff.uploaded[i].segment.segment;
      same = SegmentKey(of.version, of.part, of.space, of.builder) ==
             handoff.segments[i].first;
    }
    if (!same) return HandoffFault("other segments were uploaded");
  }
  for (int i = 0; i < in.small_keys_size(); ++i) {
    const auto fields = DecodeSmallKey(in.small_keys(i));
    if (!fields.has_value() || fields->part != part ||
        fields->version != handoff.record.version) {
      return HandoffFault("a small block is of another part");
    }
    handoff.small.emplace_back(in.small_keys(i), in.small_values(i));
  }
  handoff.attempt = in.attempt();
  handoff.session = in.session();
  handoff.world = in.world();
  handoff.nonce = in.nonce();
  handoff.host = in.host();
  handoff.pid = in.pid();
  handoff.nanoseconds = in.nanoseconds();
  if (absl::Status status = DecodeLayout(in, &handoff.layout); !status.ok()) {
    return status;
  }
  return handoff;
}

}  // namespace ckptree::schema
