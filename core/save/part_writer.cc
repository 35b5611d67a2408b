// SPDX-License-Identifier: Apache-2.0

// Hot path: per chunk and per leaf.

#include "core/save/part_writer.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>

#include "absl/strings/str_format.h"
#include "base/mapped_vector.h"
#include "base/status_macros.h"
#include "ckptree/path.h"
#include "core/array/leaf_statistics.h"
#include "core/process/arena.h"
#include "core/process/first_error.h"
#include "core/save/part_compare.h"
#include "core/save/split_leaves.h"
#include "core/version/leaf_share.h"
#include "schema/keys.h"
#include "schema/limits.h"
#include "schema/slice_proof.h"

namespace ckptree::internal {
namespace {

using schema::ChunkRef;
using schema::LeafRecord;

// A map of more sources than this makes restores slow: all records are written
// together again.
constexpr std::size_t kMaxMapSources = 256;

// Leaves whose records are made in one go, and kept in one piece of memory.
constexpr std::size_t kRecordsTogether = 256;

constexpr std::uint32_t kNoMore = 0xffffffff;

// A leaf that gets a new record. There may be a million.
struct FreshLeaf {
  std::uint32_t ordinal = 0;
  std::uint32_t at = 0;  // Of its record in those of its batch.
  std::uint32_t record_bytes = 0;
  std::uint32_t more = kNoMore;  // Which of FreshBatch::more.
  base::Digest value;
};

// What one that is not inline, or has elements that are no numbers, has beside
// that: see CompactPartBuilder::NewLeaf.
struct MoreOfLeaf {
  std::uint64_t nan = 0;
  std::uint64_t inf = 0;
  schema::ChunkRef chunk;
  bool has_chunk = false;
  std::shared_ptr<const LeafRecord> record;
};

// kRecordsTogether leaves, or fewer at the end.
struct FreshBatch {
  std::string encoded;  // Their records.
  std::vector<MoreOfLeaf> more;
  std::uint64_t new_bytes = 0;
};

std::string NameOf(const SourceLeaf& source) {
  return Path::Decode(source.path).value_or(Path()).Text();
}

absl::Status CheckSize(const SourceLeaf& source, std::size_t chunks,
                       std::string_view encoded) {
  if (encoded.size() <= std::size_t{schema::kMaxRecordBytes}) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s: with %d chunks its record has %d bytes, at most %d are possible: "
      "give it larger chunks",
      NameOf(source), chunks, encoded.size(), schema::kMaxRecordBytes));
}

// No step is committed of which a leaf could not be read again, whatever let it
// get here.
absl::Status CheckReadable(const SourceLeaf& source, const LeafRecord& record) {
  const absl::Status status = schema::CheckLeafRecord(record);
  if (status.ok()) return status;
  return absl::InternalError(
      absl::StrFormat("%s could not be read again, and was not saved: %s",
                      NameOf(source), status.message()));
}

// Whether the map of the base is so long that all records are to be written
// together again.
bool IsScattered(const CompactPart* base) {
  return base != nullptr && (base->map().SourceCount() > kMaxMapSources ||
                             base->map_bytes() > base->all_record_bytes());
}

class PartWriter {
 public:
  PartWriter(const PartTask& task, StagedContent* content,
             const CompactPart* base)
      : task_(task),
        content_(content->content()),
        base_(base),
        dense_(IsScattered(base)),
        segment_settings_(MakeSegmentSettings()),
        sink_(segment_settings_),
        compare_(task, content, base, dense_, &sink_),
        leaves_(compare_.leaves()) {}

  absl::StatusOr<PartResult> Run() {
    CKPTREE_RETURN_IF_ERROR(compare_.Run());
    sink_.Seal();
    CKPTREE_RETURN_IF_ERROR(MakeRecords());
    // The syncs of the chunks take the disk's time, the rest the processor's.
    absl::Status chunks, leaves;
    PartResult result;
    if (records_are_small() && sink_.all_small()) {
      // No file, and little to do: not worth waking another thread.
      result = Result();
    } else {
      TaskGroup tasks;
      tasks.run([this, &chunks] { chunks = sink_.Finish(); });
      tasks.run([this, &leaves] { leaves = WriteLeafSegment(); });
      tasks.run([this, &result] { result = Result(); });
      tasks.wait();
    }
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
    settings.on_built = task_.on_built;
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

  // Fills in `record`, whose memory is used again.
  void MakeRecord(std::size_t i, LeafRecord* record) const {
    const SourceLeaf& source = content_.leaves[i];
    const ComparedLeaf& leaf = leaves_[i];
    const Since since = leaf.changed ? Since{task_.version, task_.step}
                                     : base_->since(leaf.base);
    record->since_version = since.version;
    record->since_step = since.step;
    record->byte_length = source.byte_length;
    record->is_inline = source.form == LeafForm::kInline;
    record->boxes.clear();
    record->chunks.clear();
    record->statistics.clear();
    if (record->is_inline) {
      record->inline_value = source.value();
      if (compare_.WantsStatistics(source)) {
        record->statistics.push_back(
            ComputeStatistics(source.entry().dtype, source.entry().packed,
                              std::as_bytes(std::span(source.value())),
                              ElementCount(source.entry().shape)));
      }
      return;
    }
    record->inline_value.clear();
    for (const SourceBox& box : source.boxes()) {
      record->boxes.push_back(*box.box);
    }
    for (const ComparedChunk& chunk : compare_.chunks(i)) {
      ChunkRef& ref = record->chunks.emplace_back(chunk.ref);
      if (chunk.block == kNotWritten) continue;
      const BlockSink::Place& place = sink_.place(chunk.block);
      ref.place = place.place;
      ref.n = place.n;
      ref.version = task_.version;
      ref.part = task_.part;
    }
    const std::span<const Statistics> statistics = compare_.statistics(i);
    record->statistics.assign(statistics.begin(), statistics.end());
  }

  // What the next save and this one's totals need of a record.
  void Note(const LeafRecord& record, FreshLeaf* leaf,
            FreshBatch* batch) const {
    MoreOfLeaf more;
    for (const Statistics& statistics : record.statistics) {
      more.nan += statistics.nan;
      more.inf += statistics.inf;
    }
    for (const ChunkRef& ref : record.chunks) {
      if (ref.version == task_.version) batch->new_bytes += ref.length;
    }
    if (record.is_inline && record.since_version == task_.version) {
      batch->new_bytes += record.byte_length;
    }
    if (!IsCompact(record.is_inline, content_.leaves[leaf->ordinal].is_whole(),
                   record.byte_length, record.chunks)) {
      more.record = std::make_shared<const LeafRecord>(record);
    } else if (!record.is_inline) {
      more.chunk = record.chunks[0];
      more.has_chunk = true;
    }
    if (more.record == nullptr && !more.has_chunk && more.nan == 0 &&
        more.inf == 0) {
      return;
    }
    leaf->more = static_cast<std::uint32_t>(batch->more.size());
    batch->more.push_back(std::move(more));
  }

  // Records of the leaves that changed or of which more is known, or of all
  // where the map got too long; decides where they go.
  absl::Status MakeRecords() {
    for (std::uint32_t i = 0; i < leaves_.size(); ++i) {
      if (leaves_[i].changed || leaves_[i].rewrite || leaves_[i].says_more ||
          dense_) {
        fresh_.emplace_back().ordinal = i;
      }
    }
    batches_.resize((fresh_.size() + kRecordsTogether - 1) / kRecordsTogether);
    FirstError error;
    ForEach(0, batches_.size(), [&](std::size_t b) {
      const ThreadLimit::Piece piece(task_.limit);
      LeafRecord record;
      FreshBatch& batch = batches_[b];
      std::string& encoded = batch.encoded;
      const std::size_t first = b * kRecordsTogether;
      const std::size_t end = std::min(fresh_.size(), first + kRecordsTogether);
      for (std::size_t f = first; f < end; ++f) {
        FreshLeaf& leaf = fresh_[f];
        MakeRecord(leaf.ordinal, &record);
        error.Note(CheckReadable(content_.leaves[leaf.ordinal], record));
        leaf.value = schema::ValueDigest(record);
        leaf.at = static_cast<std::uint32_t>(encoded.size());
        schema::EncodeLeafRecord(record, &encoded);
        leaf.record_bytes =
            static_cast<std::uint32_t>(encoded.size() - leaf.at);
        Note(record, &leaf, &batch);
      }
    });
    for (const FreshBatch& batch : batches_) {
      record_bytes_ += batch.encoded.size();
    }
    return error.status();
  }

  std::string_view encoded(std::size_t f) const {
    return std::string_view(batches_[f / kRecordsTogether].encoded)
        .substr(fresh_[f].at, fresh_[f].record_bytes);
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
      const std::uint32_t ordinal = fresh_[f].ordinal;
      const SourceLeaf& leaf = content_.leaves[ordinal];
      CKPTREE_RETURN_IF_ERROR(
          CheckSize(leaf, leaves_[ordinal].chunk_count, encoded(f)));
      schema::TableSlice slice;
      slice.path = base::DigestOf(leaf.path);
      slice.length = fresh_[f].record_bytes;
      slice.digest = fresh_[f].value;
      CKPTREE_RETURN_IF_ERROR(builder->Add(
          ordinal + 1, encoded(f), encoded(f).size(), std::span(&slice, 1)));
    }
    CKPTREE_ASSIGN_OR_RETURN(leaf_segment_, builder->Finish());
    if (task_.on_built) task_.on_built(*leaf_segment_);
    return absl::OkStatus();
  }

  // `small` records of this part: header, leaf records, chunks, in key order.
  std::vector<std::pair<std::string, std::string>> SmallRecords() {
    std::vector<std::pair<std::string, std::string>> records;
    for (std::size_t f = 0; records_are_small() && f < fresh_.size(); ++f) {
      records.emplace_back(schema::SmallKey(task_.version, task_.part,
                                            schema::BlockKind::kLeafRecord,
                                            fresh_[f].ordinal + 1),
                           std::string(encoded(f)));
    }
    for (auto& [n, payload] : sink_.small()) {
      records.emplace_back(schema::SmallKey(task_.version, task_.part,
                                            schema::BlockKind::kChunk, n),
                           std::move(payload));
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

  // Behind each slice that a reader can find by its leaf alone: that it is the
  // right one. Last of all, for it is said of the whole step.
  void ProveSlices(const PartResult& result) {
    if (!compare_.packs_have_proofs()) return;
    schema::ProvedLeaf proved = {.version = task_.version,
                                 .part = task_.part,
                                 .tree = content_.tree->digest,
                                 .step = StepDigest({result.digest})};
    for (const FreshLeaf& leaf : fresh_) {
      const SourceLeaf& source = content_.leaves[leaf.ordinal];
      if (source.form != LeafForm::kPacked || !source.is_whole() ||
          source.entry().kind != EntryKind::kArray ||
          source.byte_length < schema::kLeastProvedBytes) {
        continue;
      }
      const ComparedChunk& chunk = compare_.chunks(leaf.ordinal)[0];
      if (chunk.block == kNotWritten) continue;
      const BlockSink::Place& place = sink_.place(chunk.block);
      if (place.place != schema::Space::kSmall) continue;
      proved.ordinal = leaf.ordinal;
      const base::Digest proof = schema::SliceProof(proved, chunk.ref.digest);
      std::string& pack = sink_.small()[schema::SequenceOf(place.n) - 1].second;
      std::memcpy(pack.data() + chunk.ref.offset + chunk.ref.length,
                  proof.bytes.data(), schema::kSliceProofBytes);
    }
  }

  // What was written, once all of it is.
  void AddBlocks(PartResult* result) {
    ProveSlices(*result);
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
    const schema::Space place =
        records_are_small() ? schema::Space::kSmall : schema::Space::kLeaves;
    CompactPartBuilder next(base_, leaves_.size());
    std::size_t matched = 0;
    // The runs of the base's map by the ordinal that was asked for last.
    std::size_t run = 0;
    const auto stands_at = [this, &run](std::uint32_t ordinal) {
      const std::vector<schema::MapRun>& runs = base_->map().runs();
      while (ordinal >= runs[run].first + runs[run].count) ++run;
      const schema::MapRun& of = runs[run];
      return schema::MapRun{0, 1, of.place, of.version,
                            of.source + (ordinal - of.first)};
    };
    for (const FreshBatch& batch : batches_) {
      result.new_bytes += batch.new_bytes;
    }
    auto fresh = fresh_.begin();
    for (std::uint32_t i = 0; i < leaves_.size(); ++i) {
      if (fresh == fresh_.end() || fresh->ordinal != i) {
        // The leaves of the base are matched in its order.
        next.Keep(leaves_[i].base, stands_at(leaves_[i].base));
        ++matched;
        continue;
      }
      CompactPartBuilder::NewLeaf added;
      added.at = {0, 1, place, task_.version, i};
      added.value = fresh->value;
      added.since = leaves_[i].changed ? Since{task_.version, task_.step}
                                       : base_->since(leaves_[i].base);
      added.byte_length = content_.leaves[i].byte_length;
      added.record_bytes = fresh->record_bytes;
      // Its record has just been made: with the statistics of all or of none.
      added.unknown =
          !task_.statistics && MayBeNonfinite(content_.leaves[i].entry(),
                                              content_.leaves[i].byte_length);
      if (fresh->more != kNoMore) {
        const auto f = static_cast<std::size_t>(fresh - fresh_.begin());
        const MoreOfLeaf& more =
            batches_[f / kRecordsTogether].more[fresh->more];
        added.nan = more.nan;
        added.inf = more.inf;
        if (more.has_chunk) added.chunk = &more.chunk;
        added.record = more.record;
      }
      next.Add(std::move(added));
      ++fresh;
    }
    const bool same_tree =
        base_ != nullptr && base_->tree_digest() == content_.tree->digest;
    const bool together = dense_ || base_ == nullptr || matched == 0;
    const std::uint64_t map_bytes =
        together
            ? 0
            : base_->map_bytes() + schema::EncodeLeafMap(next.map()).size();
    result.tree = same_tree ? base_->tree() : content_.tree;
    result.next = next.Finish(result.tree, map_bytes);
    Count(&result);
    result.logical_bytes = result.next->logical_bytes();
    result.dead = DeadBlocks(base_, *result.next);
    result.record.part = task_.part;
    result.record.tree = content_.tree->digest;
    result.record.map = schema::PackedLeafMap(result.next->map());
    return result;
  }

  // Digest and totals.
  void Count(PartResult* result) const {
    const CompactPart& next = *result->next;
    base::DigestStream digest;
    digest.Update(content_.tree->digest.view());
    LeafTotals own;
    SplitWriter split;
    std::vector<schema::Box> boxes;
    auto no_number = next.nonfinite().begin();
    for (std::uint32_t i = 0; i < leaves_.size(); ++i) {
      digest.Update(next.value(i).view());
      LeafMarks marks;
      marks.changed = leaves_[i].changed;
      marks.nonfinite =
          no_number != next.nonfinite().end() && no_number->ordinal == i;
      marks.unknown = next.is_unknown(i);
      if (marks.nonfinite) {
        result->nan_count += no_number->nan;
        result->inf_count += no_number->inf;
        ++no_number;
      }
      if (!task_.among_others) {
        own.Add(marks);
        continue;
      }
      const SourceLeaf& leaf = content_.leaves[i];
      boxes.clear();
      for (const SourceBox& box : leaf.boxes()) boxes.push_back(*box.box);
      switch (ShareOf(leaf.entry(), boxes)) {
        case Share::kAll:
          own.Add(marks);
          break;
        case Share::kSome:
          split.Add(leaf.path, marks);
          break;
        case Share::kNothing:
          break;
      }
    }
    result->digest = digest.Finish();
    result->leaf_count = own.leaves;
    result->changed_leaves = own.changed;
    result->nonfinite_leaves = own.nonfinite;
    result->unknown_leaves = own.unknown;
    if (!task_.among_others) return;
    result->layout = Layout();
    result->layout.split = std::move(split).Finish();
  }

  // REQUIRES: the base has the same tree. A value that it has without a record
  // is whole there.
  bool HasBoxesOfBase(std::size_t i) const {
    const SourceLeaf& leaf = content_.leaves[i];
    const schema::LeafRecord* const old = base_->record(i);
    if (old == nullptr) return leaf.is_whole();
    const auto same = [](const SourceBox& a, const schema::Box& b) {
      return a.box->start == b.start && a.box->shape == b.shape;
    };
    const std::span<const SourceBox> boxes = leaf.boxes();
    return std::equal(boxes.begin(), boxes.end(), old->boxes.begin(),
                      old->boxes.end(), same);
  }

  schema::PartLayout Layout() const {
    schema::PartLayout layout;
    layout.replicated = content_.replicated;
    layout.ties = content_.ties_elsewhere;
    layout.as_base =
        base_ != nullptr && base_->tree_digest() == content_.tree->digest;
    for (std::size_t i = 0; layout.as_base && i < leaves_.size(); ++i) {
      layout.as_base = HasBoxesOfBase(i);
    }
    if (layout.as_base) return layout;
    for (std::size_t i = 0; i < content_.leaves.size(); ++i) {
      const SourceLeaf& leaf = content_.leaves[i];
      if (leaf.is_whole()) continue;
      schema::BoxedLeaf& boxed = layout.boxed.emplace_back();
      boxed.ordinal = static_cast<std::uint32_t>(i);
      for (const SourceBox& box : leaf.boxes()) {
        boxed.boxes.push_back({box.box->start, box.box->shape, {}});
      }
    }
    return layout;
  }

  const PartTask& task_;
  const StepContent& content_;
  const CompactPart* const base_;
  const bool dense_;  // All records are made anew.
  const SegmentSettings segment_settings_;
  BlockSink sink_;
  PartCompare compare_;
  const std::vector<ComparedLeaf>& leaves_;

  base::MappedVector<FreshLeaf> fresh_;  // By ordinal, ascending.
  std::vector<FreshBatch> batches_;
  std::uint64_t record_bytes_ = 0;  // Of all batches.
  std::optional<BuiltSegment> leaf_segment_;
};

}  // namespace

absl::StatusOr<PartResult> WritePart(const PartTask& task,
                                     StagedContent* content,
                                     const CompactPart* base) {
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
