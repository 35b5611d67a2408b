// Hot path: per chunk and per leaf.

#include "core/part_writer.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <unordered_map>

#include "core/dead_blocks.h"
#include "core/leaf_statistics.h"
#include "kv/status_macros.h"
#include "schema/keys.h"
#include "schema/limits.h"
#include "tbb/blocked_range.h"
#include "tbb/enumerable_thread_specific.h"
#include "tbb/parallel_for.h"
#include "tbb/task_group.h"

namespace ckptree::internal {
namespace {

using schema::ChunkRef;
using schema::Digest;
using schema::LeafRecord;
using schema::Statistics;

// A pack is closed when the next leaf would make it larger than this: one read
// of a small leaf reads the whole pack.
constexpr std::uint64_t kPackBytes = 64 << 10;

// Leaf records up to here ride in the commit batch.
constexpr std::uint64_t kSmallRecordBytes = 256 << 10;

// A map of more sources than this makes restores slow: all records are written
// together again.
constexpr std::size_t kMaxMapSources = 256;

constexpr std::uint32_t kNotWritten = 0xffffffff;

// What is found out about one leaf.
struct LeafPlan {
  const BaseLeaf* base = nullptr;  // Same path, kind, type and shape.
  bool changed = false;            // The value differs from the base.
  bool rewrite = false;            // Equal, but leaves its pack.
  std::vector<ChunkRef> refs;
  std::vector<Statistics> statistics;
  // Parallel to refs: index in the sink, kNotWritten where the base's is kept.
  std::vector<std::uint32_t> block;
};

class PartWriter {
 public:
  PartWriter(const PartPlan& plan, StagedContent* content, const BasePart* base)
      : plan_(plan),
        staged_(*content),
        content_(content->content()),
        base_(base),
        leaves_(content_.leaves.size()),
        segment_plan_(MakeSegmentPlan()),
        sink_(segment_plan_) {}

  absl::StatusOr<PartResult> Run() {
    Match();
    CKPTREE_RETURN_IF_ERROR(ComparePieces());
    CompareInline();
    LeaveThinPacks();
    CKPTREE_RETURN_IF_ERROR(WritePacks());
    ReleaseRuns();
    CKPTREE_RETURN_IF_ERROR(sink_.Finish());
    CKPTREE_RETURN_IF_ERROR(WriteRecords());
    return Result();
  }

 private:
  SegmentPlan MakeSegmentPlan() const {
    SegmentPlan plan;
    plan.kv_options = plan_.kv_options;
    plan.staging = plan_.staging;
    plan.make_staging = plan_.make_staging;
    plan.header.uuid = plan_.uuid;
    plan.header.incarnation = plan_.incarnation;
    plan.header.version = plan_.version;
    plan.header.part = plan_.part;
    plan.header.attempt = plan_.attempt;
    // With a base most is likely to be unchanged: let the files grow instead.
    plan.bytes_expected = base_ == nullptr ? content_.bytes : 0;
    return plan;
  }

  // Finds the base's leaf of the same path, kind, type and shape.
  void Match() {
    if (base_ == nullptr) return;
    if (base_->tree == content_.tree.digest) {
      for (std::size_t i = 0; i < leaves_.size(); ++i) {
        leaves_[i].base = base_->leaves[i].get();
      }
      return;
    }
    std::unordered_map<std::string_view, std::pair<const schema::TreeEntry*,
                                                   const BaseLeaf*>>
        known;
    std::size_t ordinal = 0;
    for (const schema::TreeEntry& entry : *base_->entries) {
      if (!schema::IsLeaf(entry.kind)) continue;
      known.emplace(entry.path,
                    std::pair(&entry, base_->leaves[ordinal++].get()));
    }
    for (std::size_t i = 0; i < leaves_.size(); ++i) {
      const schema::TreeEntry& entry = content_.leaves[i].entry;
      const auto it = known.find(entry.path);
      if (it == known.end()) continue;
      const schema::TreeEntry& old = *it->second.first;
      if (old.kind == entry.kind && old.dtype == entry.dtype &&
          old.packed == entry.packed && old.shape == entry.shape) {
        leaves_[i].base = it->second.second;
      }
    }
  }

  Statistics StatisticsOf(const SourceLeaf& leaf,
                          std::span<const std::byte> bytes,
                          std::optional<std::int64_t> elements) const {
    return ComputeStatistics(leaf.entry.dtype, leaf.entry.packed, bytes,
                             elements);
  }

  bool WantsStatistics(const SourceLeaf& leaf) const {
    return plan_.statistics &&
           leaf.entry.kind == schema::EntryKind::kArray;
  }

  // Index of the leaf's first chunk of box `b`.
  static std::size_t FirstChunk(const std::vector<schema::Box>& boxes,
                                std::size_t b) {
    std::size_t first = 0;
    for (std::size_t i = 0; i < b; ++i) {
      first += static_cast<std::size_t>(schema::ChunkCount(boxes[i]));
    }
    return first;
  }

  // The base's reference for this chunk: same box, same bytes.
  static const ChunkRef* FindShared(const LeafPlan& leaf,
                                    const SourceLeaf& source,
                                    const StagedContent::Piece& piece,
                                    const Digest& digest, std::uint64_t bytes,
                                    std::size_t* index) {
    if (leaf.base == nullptr || leaf.base->record.is_inline) return nullptr;
    const LeafRecord& record = leaf.base->record;
    std::size_t first = 0;
    if (!source.boxes.empty()) {
      const schema::Box& box = source.boxes[piece.box].box;
      const auto it = std::find(record.boxes.begin(), record.boxes.end(), box);
      if (it == record.boxes.end()) return nullptr;
      first = FirstChunk(record.boxes, static_cast<std::size_t>(
                                           it - record.boxes.begin()));
    } else if (!record.boxes.empty()) {
      return nullptr;
    }
    *index = first + static_cast<std::size_t>(piece.cell);
    if (*index >= record.chunks.size()) return nullptr;
    const ChunkRef& ref = record.chunks[*index];
    return ref.digest == digest && ref.raw_length == bytes ? &ref : nullptr;
  }

  schema::TableSlice SliceOf(const SourceLeaf& leaf, std::uint32_t box,
                             const ChunkGrid::Cell* cell) const {
    schema::TableSlice slice;
    slice.path = schema::DigestOf(leaf.entry.path);
    if (cell != nullptr) {
      slice.start = cell->start;
      slice.shape = cell->shape;
    } else if (!leaf.boxes.empty()) {
      slice.start = leaf.boxes[box].box.start;
      slice.shape = leaf.boxes[box].box.shape;
    }
    return slice;
  }

  // Step 3 for chunked leaves (and step 4 at once), step 3 for runs.
  absl::Status ComparePieces() {
    PrepareRefs();
    std::atomic<bool> failed{false};
    absl::Mutex mu;
    absl::Status first;
    tbb::parallel_for(
        tbb::blocked_range<std::size_t>(0, staged_.piece_count(), 1),
        [this, &failed, &mu, &first](
            const tbb::blocked_range<std::size_t>& range) {
          for (std::size_t i = range.begin(); i != range.end(); ++i) {
            if (failed.load(std::memory_order_relaxed)) return;
            absl::Status status = plan_.check();
            if (status.ok()) {
              staged_.Take(i);
              status = staged_.piece(i).run ? CompareRun(i) : CompareChunk(i);
            }
            if (!status.ok()) {
              failed.store(true);
              absl::MutexLock lock(&mu);
              first.Update(status);
            }
          }
        },
        tbb::simple_partitioner());
    return first;
  }

  void PrepareRefs() {
    for (std::size_t i = 0; i < leaves_.size(); ++i) {
      const SourceLeaf& source = content_.leaves[i];
      std::size_t count = 0;
      if (source.form == LeafForm::kPacked) {
        count = 1;
      } else if (source.form == LeafForm::kChunked) {
        for (std::uint32_t b = 0; b < source.boxes.size(); ++b) {
          count += static_cast<std::size_t>(
              staged_.grid(static_cast<std::uint32_t>(i), b).count());
        }
      }
      leaves_[i].refs.resize(count);
      leaves_[i].block.assign(count, kNotWritten);
      if (WantsStatistics(source)) leaves_[i].statistics.resize(count);
    }
    // Values cut linearly have no boxes: their pieces say how many chunks.
    for (std::size_t i = 0; i < staged_.piece_count(); ++i) {
      const StagedContent::Piece& piece = staged_.piece(i);
      if (piece.run || !content_.leaves[piece.leaf].boxes.empty()) continue;
      LeafPlan& leaf = leaves_[piece.leaf];
      leaf.refs.resize(leaf.refs.size() + 1);
      leaf.block.push_back(kNotWritten);
    }
  }

  absl::Status CompareChunk(std::size_t index) {
    const StagedContent::Piece& piece = staged_.piece(index);
    const SourceLeaf& source = content_.leaves[piece.leaf];
    LeafPlan& leaf = leaves_[piece.leaf];
    std::size_t at = static_cast<std::size_t>(piece.cell);
    for (std::uint32_t b = 0; b < piece.box; ++b) {
      at += static_cast<std::size_t>(staged_.grid(piece.leaf, b).count());
    }
    CKPTREE_ASSIGN_OR_RETURN(
        const std::span<const std::byte> bytes,
        staged_.Bytes(index, piece.leaf, &scratch_.local()));
    ChunkRef& ref = leaf.refs[at];
    ref.digest = schema::DigestOf(bytes);
    plan_.counters->compared.fetch_add(bytes.size(), std::memory_order_relaxed);
    std::size_t old = 0;
    if (const ChunkRef* shared = FindShared(leaf, source, piece, ref.digest,
                                            bytes.size(), &old)) {
      ref = *shared;
      if (!leaf.statistics.empty()) {
        const std::vector<Statistics>& known = leaf.base->record.statistics;
        if (old < known.size()) {
          leaf.statistics[at] = known[old];
        } else {
          leaf.statistics[at] = StatisticsOf(source, bytes, Elements(piece));
        }
      }
      plan_.counters->unchanged.fetch_add(bytes.size(),
                                          std::memory_order_relaxed);
    } else {
      if (!leaf.statistics.empty()) {
        leaf.statistics[at] = StatisticsOf(source, bytes, Elements(piece));
      }
      CKPTREE_RETURN_IF_ERROR(WriteChunk(piece, source, at, bytes, &leaf));
    }
    staged_.Release(index);
    return absl::OkStatus();
  }

  std::optional<std::int64_t> Elements(const StagedContent::Piece& piece) const {
    if (content_.leaves[piece.leaf].boxes.empty()) return std::nullopt;
    return staged_.grid(piece.leaf, piece.box).cell_elements(piece.cell);
  }

  absl::Status WriteChunk(const StagedContent::Piece& piece,
                          const SourceLeaf& source, std::size_t at,
                          std::span<const std::byte> bytes, LeafPlan* leaf) {
    ChunkRef& ref = leaf->refs[at];
    const auto size = static_cast<std::uint32_t>(bytes.size());
    ref.length = ref.raw_length = ref.block_length = size;
    std::vector<schema::TableSlice> slices;
    if (source.boxes.empty()) {
      slices.push_back(SliceOf(source, 0, nullptr));
    } else {
      const ChunkGrid::Cell cell =
          staged_.grid(piece.leaf, piece.box).cell(piece.cell);
      slices.push_back(SliceOf(source, piece.box, &cell));
    }
    slices[0].length = slices[0].raw_length = size;
    slices[0].digest = ref.digest;
    CKPTREE_ASSIGN_OR_RETURN(
        leaf->block[at],
        sink_.Write(Order(piece.leaf, at), bytes, std::move(slices)));
    plan_.counters->written.fetch_add(size, std::memory_order_relaxed);
    return absl::OkStatus();
  }

  static std::uint64_t Order(std::uint32_t leaf, std::size_t chunk) {
    return (std::uint64_t{leaf} << 32) | chunk;
  }

  absl::Status CompareRun(std::size_t index) {
    const StagedContent::Piece& piece = staged_.piece(index);
    for (std::uint32_t i = piece.leaf; i < piece.leaf_end; ++i) {
      const SourceLeaf& source = content_.leaves[i];
      LeafPlan& leaf = leaves_[i];
      CKPTREE_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes,
                               staged_.Bytes(index, i, &scratch_.local()));
      ChunkRef& ref = leaf.refs[0];
      ref.digest = schema::DigestOf(bytes);
      std::size_t old = 0;
      const ChunkRef* shared =
          FindShared(leaf, source, piece, ref.digest, bytes.size(), &old);
      if (shared != nullptr) {
        ref = *shared;
        if (!leaf.statistics.empty() &&
            !leaf.base->record.statistics.empty()) {
          leaf.statistics[0] = leaf.base->record.statistics[0];
          continue;
        }
      } else {
        leaf.changed = true;
      }
      if (!leaf.statistics.empty()) {
        leaf.statistics[0] = StatisticsOf(
            source, bytes, schema::ElementCount(source.boxes[0].box.shape));
      }
    }
    plan_.counters->compared.fetch_add(piece.bytes, std::memory_order_relaxed);
    return absl::OkStatus();
  }

  // Inline values, and the verdict on chunked leaves.
  void CompareInline() {
    tbb::parallel_for(
        tbb::blocked_range<std::size_t>(0, leaves_.size(), 1024),
        [this](const tbb::blocked_range<std::size_t>& range) {
          for (std::size_t i = range.begin(); i != range.end(); ++i) {
            const SourceLeaf& source = content_.leaves[i];
            LeafPlan& leaf = leaves_[i];
            if (source.form == LeafForm::kPacked) continue;
            if (source.form == LeafForm::kChunked) {
              leaf.changed = !SameChunks(source, leaf);
              continue;
            }
            leaf.changed = leaf.base == nullptr ||
                           !leaf.base->record.is_inline ||
                           leaf.base->record.inline_value != source.value;
            if (!WantsStatistics(source)) continue;
            if (!leaf.changed && !leaf.base->record.statistics.empty()) {
              leaf.statistics = leaf.base->record.statistics;
              continue;
            }
            leaf.statistics.assign(
                1, StatisticsOf(source, std::as_bytes(std::span(source.value)),
                                schema::ElementCount(source.entry.shape)));
          }
        });
  }

  static bool SameChunks(const SourceLeaf& source, const LeafPlan& leaf) {
    if (leaf.base == nullptr) return false;
    const LeafRecord& record = leaf.base->record;
    if (record.is_inline || record.boxes.size() != source.boxes.size() ||
        record.byte_length != source.byte_length) {
      return false;
    }
    for (std::size_t b = 0; b < source.boxes.size(); ++b) {
      if (!(record.boxes[b] == source.boxes[b].box)) return false;
    }
    return record.chunks == leaf.refs;
  }

  // A pack of which less than half is still referred to is left behind: the
  // unchanged leaves in it are written again.
  void LeaveThinPacks() {
    if (base_ == nullptr) return;
    std::map<schema::Block, std::uint64_t> live;
    const auto name = [](const ChunkRef& ref) {
      return schema::Block{schema::BlockKind::kChunk, ref.place, ref.version,
                           ref.n};
    };
    const auto kept = [](const LeafPlan& leaf) {
      return !leaf.changed && leaf.refs.size() == 1 &&
             leaf.refs[0].length != leaf.refs[0].block_length;
    };
    for (const LeafPlan& leaf : leaves_) {
      if (kept(leaf)) live[name(leaf.refs[0])] += leaf.refs[0].length;
    }
    if (live.empty()) return;
    for (std::size_t i = 0; i < leaves_.size(); ++i) {
      LeafPlan& leaf = leaves_[i];
      if (content_.leaves[i].form == LeafForm::kPacked && kept(leaf) &&
          2 * live[name(leaf.refs[0])] < leaf.refs[0].block_length) {
        leaf.rewrite = true;
      }
    }
  }

  struct Pack {
    std::vector<std::pair<std::size_t, std::uint32_t>> members;  // piece, leaf
    std::uint64_t bytes = 0;
  };

  // Step 4 for packed leaves.
  absl::Status WritePacks() {
    std::vector<Pack> packs;
    for (std::size_t i = 0; i < staged_.piece_count(); ++i) {
      const StagedContent::Piece& piece = staged_.piece(i);
      if (!piece.run) continue;
      for (std::uint32_t l = piece.leaf; l < piece.leaf_end; ++l) {
        LeafPlan& leaf = leaves_[l];
        const std::uint64_t size = content_.leaves[l].byte_length;
        if (!leaf.changed && !leaf.rewrite) {
          plan_.counters->unchanged.fetch_add(size, std::memory_order_relaxed);
          continue;
        }
        // Values of a cache line and more start on one: views need no copy.
        const std::uint64_t align = size >= 512 ? 64 : 16;
        if (packs.empty() || packs.back().bytes + align + size > kPackBytes) {
          packs.emplace_back();
        }
        Pack& pack = packs.back();
        pack.bytes = (pack.bytes + align - 1) / align * align;
        leaf.refs[0].offset = static_cast<std::uint32_t>(pack.bytes);
        pack.bytes += size;
        pack.members.emplace_back(i, l);
      }
    }
    std::atomic<bool> failed{false};
    absl::Mutex mu;
    absl::Status first;
    tbb::parallel_for(std::size_t{0}, packs.size(), [&](std::size_t p) {
      if (failed.load(std::memory_order_relaxed)) return;
      absl::Status status = plan_.check();
      if (status.ok()) status = WritePack(packs[p]);
      if (status.ok()) return;
      failed.store(true);
      absl::MutexLock lock(&mu);
      first.Update(status);
    });
    return first;
  }

  absl::Status WritePack(const Pack& pack) {
    std::vector<std::byte>& payload = pack_scratch_.local();
    payload.assign(pack.bytes, std::byte{0});
    std::vector<schema::TableSlice> slices;
    slices.reserve(pack.members.size());
    for (const auto& [piece, l] : pack.members) {
      const SourceLeaf& source = content_.leaves[l];
      CKPTREE_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes,
                               staged_.Bytes(piece, l, &scratch_.local()));
      ChunkRef& ref = leaves_[l].refs[0];
      std::memcpy(payload.data() + ref.offset, bytes.data(), bytes.size());
      ref.length = ref.raw_length = static_cast<std::uint32_t>(bytes.size());
      ref.block_length = static_cast<std::uint32_t>(pack.bytes);
      schema::TableSlice& slice =
          slices.emplace_back(SliceOf(source, 0, nullptr));
      slice.offset = ref.offset;
      slice.length = slice.raw_length = ref.length;
      slice.digest = ref.digest;
    }
    CKPTREE_ASSIGN_OR_RETURN(
        const std::uint32_t block,
        sink_.Write(Order(pack.members[0].second, 0), payload,
                    std::move(slices)));
    for (const auto& [piece, l] : pack.members) leaves_[l].block[0] = block;
    plan_.counters->written.fetch_add(pack.bytes, std::memory_order_relaxed);
    return absl::OkStatus();
  }

  void ReleaseRuns() {
    for (std::size_t i = 0; i < staged_.piece_count(); ++i) {
      if (staged_.piece(i).run) staged_.Release(i);
    }
  }

  LeafRecord MakeRecord(std::size_t i) const {
    const SourceLeaf& source = content_.leaves[i];
    const LeafPlan& leaf = leaves_[i];
    LeafRecord record;
    record.since_version =
        leaf.changed ? plan_.version : leaf.base->record.since_version;
    record.since_step = leaf.changed ? plan_.step : leaf.base->record.since_step;
    record.byte_length = source.byte_length;
    if (source.form == LeafForm::kInline) {
      record.is_inline = true;
      record.inline_value = source.value;
    } else {
      for (const SourceBox& box : source.boxes) {
        record.boxes.push_back(box.box);
      }
      record.chunks = leaf.refs;
      for (std::size_t c = 0; c < record.chunks.size(); ++c) {
        if (leaf.block[c] == kNotWritten) continue;
        const BlockSink::Place& place = sink_.place(leaf.block[c]);
        record.chunks[c].place = place.place;
        record.chunks[c].n = place.n;
        record.chunks[c].version = plan_.version;
        record.chunks[c].part = plan_.part;
      }
    }
    record.statistics = leaf.statistics;
    return record;
  }

  bool Dense() const {
    if (base_ == nullptr) return false;
    std::uint64_t record_bytes = 0;
    for (const auto& leaf : base_->leaves) record_bytes += leaf->encoded_bytes;
    return base_->map.SourceCount() > kMaxMapSources ||
           base_->map_bytes > record_bytes;
  }

  // Records of the leaves that changed, or of all where the map got too long.
  absl::Status WriteRecords() {
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
            leaf->version = plan_.version;
            leaf->source = fresh[f];
            schema::EncodeLeafRecord(leaf->record, &encoded_[f]);
            leaf->encoded_bytes =
                static_cast<std::uint32_t>(encoded_[f].size());
            fresh_[f] = std::move(leaf);
          }
        });
    std::uint64_t bytes = 0;
    for (const std::string& record : encoded_) bytes += record.size();
    if (bytes <= kSmallRecordBytes) {
      for (auto& leaf : fresh_) leaf->place = schema::Space::kSmall;
      return absl::OkStatus();
    }
    CKPTREE_ASSIGN_OR_RETURN(
        std::unique_ptr<SegmentBuilder> builder,
        SegmentBuilder::Open(segment_plan_, schema::Space::kLeaves, 0, bytes));
    for (std::size_t f = 0; f < fresh_.size(); ++f) {
      if (f % 4096 == 0) CKPTREE_RETURN_IF_ERROR(plan_.check());
      schema::TableSlice slice;
      slice.path =
          schema::DigestOf(content_.leaves[fresh_[f]->source].entry.path);
      slice.length = slice.raw_length =
          static_cast<std::uint32_t>(encoded_[f].size());
      slice.digest = fresh_[f]->value_digest;
      CKPTREE_RETURN_IF_ERROR(builder->Add(fresh_[f]->source + 1, encoded_[f],
                                           {0, {std::move(slice)}}));
    }
    encoded_.clear();
    CKPTREE_ASSIGN_OR_RETURN(leaf_segment_, builder->Finish());
    return absl::OkStatus();
  }

  // `small` records of this part: header, leaf records, chunks, in key order.
  std::vector<std::pair<std::string, std::string>> SmallRecords() {
    std::vector<std::pair<std::string, std::string>> records;
    for (std::size_t f = 0; f < fresh_.size(); ++f) {
      if (fresh_[f]->place != schema::Space::kSmall) break;
      records.emplace_back(
          schema::SmallKey(plan_.version, plan_.part,
                           schema::BlockKind::kLeafRecord,
                           fresh_[f]->source + 1),
          std::move(encoded_[f]));
    }
    for (const auto& [n, payload] : sink_.small()) {
      // A chunk's value begins with its pad length: none here.
      records.emplace_back(schema::SmallKey(plan_.version, plan_.part,
                                            schema::BlockKind::kChunk, n),
                           std::string(1, '\0') + payload);
    }
    if (records.empty()) return records;
    schema::SmallHeader header;
    header.block_count = static_cast<std::uint32_t>(records.size());
    schema::DigestStream digest;
    for (const auto& [key, value] : records) {
      digest.Update(key);
      digest.Update(value);
    }
    header.digest = digest.Finish();
    records.insert(
        records.begin(),
        {schema::SmallKey(plan_.version, plan_.part,
                          schema::BlockKind::kHeader, 0),
         schema::EncodeSmallHeader(header)});
    return records;
  }

  PartResult Result() {
    PartResult result;
    result.records_written = fresh_.size();
    result.small = SmallRecords();
    result.segments = std::move(sink_.segments());
    if (leaf_segment_.has_value()) {
      result.segments.push_back(*std::move(leaf_segment_));
    }
    for (const LeafPlan& leaf : leaves_) {
      result.changed_leaves += leaf.changed ? 1 : 0;
    }

    auto next = std::make_shared<BasePart>();
    next->tree = content_.tree.digest;
    next->entries =
        base_ != nullptr && base_->tree == content_.tree.digest
            ? base_->entries
            : std::make_shared<const std::vector<schema::TreeEntry>>(
                  content_.entries);
    next->leaves.resize(leaves_.size());
    for (auto& leaf : fresh_) next->leaves[leaf->source] = std::move(leaf);
    schema::DigestStream digest;
    digest.Update(content_.tree.digest.view());
    std::size_t matched = 0;
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
      result.nonfinite_leaves += nan + inf > 0 ? 1 : 0;
      if (leaf->version != plan_.version) continue;
      for (const ChunkRef& ref : leaf->record.chunks) {
        if (ref.version == plan_.version) result.new_bytes += ref.raw_length;
      }
      if (leaf->record.is_inline && leaf->record.since_version == plan_.version) {
        result.new_bytes += leaf->record.byte_length;
      }
    }
    result.digest = digest.Finish();
    result.leaf_count = leaves_.size();
    result.dead = DeadBlocks(base_, *next);
    next->map_bytes = dense_ || base_ == nullptr || matched == 0
                          ? 0
                          : base_->map_bytes +
                                schema::EncodeLeafMap(next->map).size();
    result.record.part = plan_.part;
    result.record.tree = content_.tree.digest;
    result.record.map = next->map;
    result.tree = content_.tree;
    for (const BuiltSegment& segment : result.segments) {
      if (segment.staged.space == schema::Space::kChunks) {
        result.chunks_written += segment.staged.entries - 2;
      }
    }
    result.chunks_written += sink_.small().size();
    result.next = std::move(next);
    return result;
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

  const PartPlan& plan_;
  StagedContent& staged_;
  const StepContent& content_;
  const BasePart* const base_;
  std::vector<LeafPlan> leaves_;
  const SegmentPlan segment_plan_;
  BlockSink sink_;
  tbb::enumerable_thread_specific<std::vector<std::byte>> scratch_;
  tbb::enumerable_thread_specific<std::vector<std::byte>> pack_scratch_;

  bool dense_ = false;
  std::vector<std::shared_ptr<BaseLeaf>> fresh_;  // By ordinal, ascending.
  std::vector<std::string> encoded_;              // Parallel to fresh_.
  std::optional<BuiltSegment> leaf_segment_;
};

}  // namespace

absl::StatusOr<PartResult> WritePart(const PartPlan& plan,
                                     StagedContent* content,
                                     const BasePart* base) {
  return PartWriter(plan, content, base).Run();
}

schema::Digest StepDigest(const std::vector<schema::Digest>& parts) {
  schema::DigestStream digest;
  for (const schema::Digest& part : parts) digest.Update(part.view());
  return digest.Finish();
}

}  // namespace ckptree::internal
