// SPDX-License-Identifier: Apache-2.0

// Hot path: per chunk and per leaf.

#include "core/save/part_writer.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "ckptree/path.h"
#include "core/save/part_compare.h"
#include "core/save/split_leaves.h"
#include "core/version/dead_blocks.h"
#include "core/version/leaf_share.h"
#include "schema/keys.h"
#include "schema/limits.h"
#include "tbb/blocked_range.h"
#include "tbb/parallel_for.h"
#include "tbb/task_group.h"

namespace ckptree::internal {
namespace {

using schema::ChunkRef;
using schema::LeafRecord;

// A map of more sources than this makes restores slow: all records are written
// together again.
constexpr std::size_t kMaxMapSources = 256;

absl::Status CheckRecord(const SourceLeaf& source, const BaseLeaf& leaf,
                         std::string_view encoded) {
  if (encoded.size() <= std::size_t{schema::kMaxRecordBytes}) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s: with %d chunks its record has %d bytes, at most %d are possible: "
      "give it larger chunks",
      Path::Decode(source.entry.path).value_or(Path()).Text(),
      leaf.record.chunks.size(), encoded.size(), schema::kMaxRecordBytes));
}

class PartWriter {
 public:
  PartWriter(const PartTask& task, StagedContent* content, const BasePart* base)
      : task_(task),
        content_(content->content()),
        base_(base),
        segment_settings_(MakeSegmentSettings()),
        sink_(segment_settings_),
        compare_(task, content, base, &sink_),
        leaves_(compare_.leaves()) {}

  absl::StatusOr<PartResult> Run() {
    CKPTREE_RETURN_IF_ERROR(compare_.Run());
    sink_.Seal();
    MakeRecords();
    // The syncs of the chunks take the disk's time, the rest the processor's.
    absl::Status chunks, leaves;
    PartResult result;
    tbb::task_group tasks;
    tasks.run([this, &chunks] { chunks = sink_.Finish(); });
    tasks.run([this, &leaves] { leaves = WriteLeafSegment(); });
    tasks.run([this, &result] { result = Result(); });
    tasks.wait();
    CKPTREE_RETURN_IF_ERROR(chunks);
    CKPTREE_RETURN_IF_ERROR(leaves);
    AddBlocks(&result);
    result.times = sink_.times();
    task_.counters->coded.fetch_add(sink_.coded_bytes());
    task_.counters->coded_to.fetch_add(sink_.coded_to());
    return result;
  }

 private:
  SegmentSettings MakeSegmentSettings() const {
    SegmentSettings settings;
    settings.kv_options = task_.kv_options;
    settings.staging = task_.staging;
    settings.make_staging = task_.make_staging;
    settings.header.uuid = task_.uuid;
    settings.header.incarnation = task_.incarnation;
    settings.header.version = task_.version;
    settings.header.part = task_.part;
    settings.header.attempt = task_.attempt;
    settings.limits = task_.segments;
    settings.small = task_.small;
    settings.coding = task_.coding;
    settings.bytes_at_most = content_.bytes;
    // With a base most is likely to be unchanged: let the files grow instead.
    settings.bytes_expected = base_ == nullptr ? content_.bytes : 0;
    return settings;
  }

  // Takes the references and statistics of leaf `i`.
  LeafRecord MakeRecord(std::size_t i) {
    const SourceLeaf& source = content_.leaves[i];
    ComparedLeaf& leaf = leaves_[i];
    LeafRecord record;
    record.since_version =
        leaf.changed ? task_.version : leaf.base->record.since_version;
    record.since_step =
        leaf.changed ? task_.step : leaf.base->record.since_step;
    record.byte_length = source.byte_length;
    if (source.form == LeafForm::kInline) {
      record.is_inline = true;
      record.inline_value = source.value;
    } else {
      record.boxes.reserve(source.boxes.size());
      for (const SourceBox& box : source.boxes) {
        record.boxes.push_back(box.box);
      }
      record.chunks = std::move(leaf.refs);
      for (std::size_t c = 0; c < record.chunks.size(); ++c) {
        if (leaf.block[c] == kNotWritten) continue;
        const BlockSink::Place& place = sink_.place(leaf.block[c]);
        record.chunks[c].place = place.place;
        record.chunks[c].n = place.n;
        record.chunks[c].version = task_.version;
        record.chunks[c].part = task_.part;
      }
    }
    record.statistics = std::move(leaf.statistics);
    return record;
  }

  bool Dense() const {
    if (base_ == nullptr) return false;
    std::uint64_t record_bytes = 0;
    for (const auto& leaf : base_->leaves) record_bytes += leaf->encoded_bytes;
    return base_->map.SourceCount() > kMaxMapSources ||
           base_->map_bytes > record_bytes;
  }

  // Records of the leaves that changed, or of all where the map got too long;
  // decides where they go.
  void MakeRecords() {
    dense_ = Dense();
    std::vector<std::uint32_t> fresh;
    for (std::uint32_t i = 0; i < leaves_.size(); ++i) {
      if (leaves_[i].changed || leaves_[i].rewrite || dense_) {
        fresh.push_back(i);
      }
    }
    fresh_.resize(fresh.size());
    encoded_.resize(fresh.size());
    tbb::parallel_for(
        tbb::blocked_range<std::size_t>(0, fresh.size(), 256),
        [this, &fresh](const tbb::blocked_range<std::size_t>& range) {
          for (std::size_t f = range.begin(); f != range.end(); ++f) {
            auto leaf = std::make_shared<BaseLeaf>();
            leaf->record = MakeRecord(fresh[f]);
            leaf->value_digest = schema::ValueDigest(leaf->record);
            leaf->version = task_.version;
            leaf->source = fresh[f];
            schema::EncodeLeafRecord(leaf->record, &encoded_[f]);
            leaf->encoded_bytes =
                static_cast<std::uint32_t>(encoded_[f].size());
            fresh_[f] = std::move(leaf);
          }
        });
    for (const std::string& record : encoded_) record_bytes_ += record.size();
    for (auto& leaf : fresh_) {
      leaf->place =
          records_are_small() ? schema::Space::kSmall : schema::Space::kLeaves;
    }
  }

  // After MakeRecords(): they ride in the batch.
  bool records_are_small() const {
    return record_bytes_ <= task_.small.record_bytes;
  }

  absl::Status WriteLeafSegment() {
    if (records_are_small()) return absl::OkStatus();
    CKPTREE_ASSIGN_OR_RETURN(
        std::unique_ptr<SegmentBuilder> builder,
        SegmentBuilder::Open(segment_settings_, schema::Space::kLeaves, 0,
                             record_bytes_));
    for (std::size_t f = 0; f < fresh_.size(); ++f) {
      if (f % 4096 == 0) CKPTREE_RETURN_IF_ERROR(task_.check());
      const SourceLeaf& leaf = content_.leaves[fresh_[f]->source];
      CKPTREE_RETURN_IF_ERROR(CheckRecord(leaf, *fresh_[f], encoded_[f]));
      schema::TableSlice slice;
      slice.path = base::DigestOf(leaf.entry.path);
      slice.length = static_cast<std::uint32_t>(encoded_[f].size());
      slice.digest = fresh_[f]->value_digest;
      CKPTREE_RETURN_IF_ERROR(builder->Add(fresh_[f]->source + 1, encoded_[f],
                                           encoded_[f].size(),
                                           {0, {std::move(slice)}}));
    }
    CKPTREE_ASSIGN_OR_RETURN(leaf_segment_, builder->Finish());
    return absl::OkStatus();
  }

  // `small` records of this part: header, leaf records, chunks, in key order.
  std::vector<std::pair<std::string, std::string>> SmallRecords() {
    std::vector<std::pair<std::string, std::string>> records;
    for (std::size_t f = 0; records_are_small() && f < fresh_.size(); ++f) {
      records.emplace_back(schema::SmallKey(task_.version, task_.part,
                                            schema::BlockKind::kLeafRecord,
                                            fresh_[f]->source + 1),
                           std::move(encoded_[f]));
    }
    for (const auto& [n, payload] : sink_.small()) {
      records.emplace_back(schema::SmallKey(task_.version, task_.part,
                                            schema::BlockKind::kChunk, n),
                           payload);
    }
    if (records.empty()) return records;
    schema::SmallHeader header;
    header.block_count = static_cast<std::uint32_t>(records.size());
    base::DigestStream digest;
    for (const auto& [key, value] : records) {
      digest.Update(key);
      digest.Update(value);
    }
    header.digest = digest.Finish();
    records.insert(records.begin(),
                   {schema::SmallKey(task_.version, task_.part,
                                     schema::BlockKind::kHeader, 0),
                    schema::EncodeSmallHeader(header)});
    return records;
  }

  // What was written, once all of it is.
  void AddBlocks(PartResult* result) {
    result->records_written = fresh_.size();
    result->small = SmallRecords();
    result->segments = std::move(sink_.segments());
    if (leaf_segment_.has_value()) {
      result->segments.push_back(*std::move(leaf_segment_));
    }
    for (const BuiltSegment& segment : result->segments) {
      if (segment.staged.space == schema::Space::kChunks) {
        result->chunks_written += segment.blocks;
      }
    }
    result->chunks_written += sink_.small().size();
  }

  // The base of the next save, and what follows from it.
  PartResult Result() const {
    PartResult result;
    auto next = std::make_shared<BasePart>();
    next->tree = content_.tree.digest;
    next->entries =
        base_ != nullptr && base_->tree == content_.tree.digest
            ? base_->entries
            : std::make_shared<const std::vector<schema::TreeEntry>>(
                  content_.entries);
    next->leaves.resize(leaves_.size());
    for (const auto& leaf : fresh_) next->leaves[leaf->source] = leaf;
    base::DigestStream digest;
    digest.Update(content_.tree.digest.view());
    std::size_t matched = 0;
    LeafTotals own;
    SplitWriter split;
    const auto ordinal_of = BaseOrdinals();
    for (std::size_t i = 0; i < leaves_.size(); ++i) {
      std::shared_ptr<const BaseLeaf>& leaf = next->leaves[i];
      if (leaf == nullptr) {
        leaf = base_->leaves[ordinal_of.empty() ? i : ordinal_of[i]];
        ++matched;
      }
      next->map.Append(leaf->place, leaf->version, leaf->source);
      digest.Update(leaf->value_digest.view());
      result.logical_bytes += leaf->record.byte_length;
      std::uint64_t nan = 0, inf = 0;
      for (const Statistics& statistics : leaf->record.statistics) {
        nan += statistics.nan;
        inf += statistics.inf;
      }
      result.nan_count += nan;
      result.inf_count += inf;
      const schema::TreeEntry& entry = content_.leaves[i].entry;
      switch (task_.among_others ? ShareOf(entry, leaf->record.boxes)
                                 : Share::kAll) {
        case Share::kAll:
          own.Add(leaves_[i].changed, nan + inf > 0);
          break;
        case Share::kSome:
          split.Add(entry.path, leaves_[i].changed, nan + inf > 0);
          break;
        case Share::kNothing:
          break;
      }
      if (leaf->version != task_.version) continue;
      for (const ChunkRef& ref : leaf->record.chunks) {
        if (ref.version == task_.version) result.new_bytes += ref.length;
      }
      if (leaf->record.is_inline &&
          leaf->record.since_version == task_.version) {
        result.new_bytes += leaf->record.byte_length;
      }
    }
    result.digest = digest.Finish();
    result.leaf_count = own.leaves;
    result.changed_leaves = own.changed;
    result.nonfinite_leaves = own.nonfinite;
    result.dead = DeadBlocks(base_, *next);
    next->map_bytes =
        dense_ || base_ == nullptr || matched == 0
            ? 0
            : base_->map_bytes + schema::EncodeLeafMap(next->map).size();
    result.record.part = task_.part;
    result.record.tree = content_.tree.digest;
    result.record.map = next->map;
    result.tree = content_.tree;
    result.next = std::move(next);
    if (task_.among_others) {
      result.layout = Layout();
      result.layout.split = std::move(split).Finish();
    }
    return result;
  }

  schema::PartLayout Layout() const {
    schema::PartLayout layout;
    layout.replicated = content_.replicated;
    layout.ties = content_.ties_elsewhere;
    layout.as_base = base_ != nullptr && base_->tree == content_.tree.digest;
    for (std::size_t i = 0; layout.as_base && i < leaves_.size(); ++i) {
      const std::vector<SourceBox>& now = content_.leaves[i].boxes;
      const schema::LeafRecord& old = base_->leaves[i]->record;
      const auto same = [](const SourceBox& a, const schema::Box& b) {
        return a.box.start == b.start && a.box.shape == b.shape;
      };
      // A value in its record has no boxes there, and is whole.
      layout.as_base =
          old.is_inline ? content_.leaves[i].form == LeafForm::kInline
                        : std::equal(now.begin(), now.end(), old.boxes.begin(),
                                     old.boxes.end(), same);
    }
    if (layout.as_base) return layout;
    for (std::size_t i = 0; i < content_.leaves.size(); ++i) {
      const SourceLeaf& leaf = content_.leaves[i];
      if (leaf.boxes.empty() || (leaf.boxes.size() == 1 &&
                                 leaf.boxes[0].box.shape == leaf.entry.shape)) {
        continue;
      }
      schema::BoxedLeaf& boxed = layout.boxed.emplace_back();
      boxed.ordinal = static_cast<std::uint32_t>(i);
      for (const SourceBox& box : leaf.boxes) {
        boxed.boxes.push_back({box.box.start, box.box.shape, {}});
      }
    }
    return layout;
  }

  // Base ordinal by new ordinal; empty where they are the same.
  std::vector<std::size_t> BaseOrdinals() const {
    std::vector<std::size_t> ordinals;
    if (base_ == nullptr || base_->tree == content_.tree.digest) {
      return ordinals;
    }
    std::unordered_map<const BaseLeaf*, std::size_t> known;
    for (std::size_t i = 0; i < base_->leaves.size(); ++i) {
      known.emplace(base_->leaves[i].get(), i);
    }
    ordinals.resize(leaves_.size());
    for (std::size_t i = 0; i < leaves_.size(); ++i) {
      if (leaves_[i].base != nullptr) ordinals[i] = known.at(leaves_[i].base);
    }
    return ordinals;
  }

  const PartTask& task_;
  const StepContent& content_;
  const BasePart* const base_;
  const SegmentSettings segment_settings_;
  BlockSink sink_;
  PartCompare compare_;
  std::vector<ComparedLeaf>& leaves_;

  bool dense_ = false;
  std::vector<std::shared_ptr<BaseLeaf>> fresh_;  // By ordinal, ascending.
  std::vector<std::string> encoded_;              // Parallel to fresh_.
  std::uint64_t record_bytes_ = 0;                // Of encoded_.
  std::optional<BuiltSegment> leaf_segment_;
};

}  // namespace

absl::StatusOr<PartResult> WritePart(const PartTask& task,
                                     StagedContent* content,
                                     const BasePart* base) {
  const auto writer = std::make_shared<PartWriter>(task, content, base);
  absl::StatusOr<PartResult> result = writer->Run();
  if (result.ok()) result->leftovers = writer;
  return result;
}

base::Digest StepDigest(const std::vector<base::Digest>& parts) {
  base::DigestStream digest;
  for (const base::Digest& part : parts) digest.Update(part.view());
  return digest.Finish();
}

}  // namespace ckptree::internal
