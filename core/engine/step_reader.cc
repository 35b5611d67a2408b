// SPDX-License-Identifier: Apache-2.0

#include "core/engine/step_reader.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "base/status_text.h"
#include "core/array/chunk_grid.h"
#include "core/engine/subtree.h"
#include "core/version/base_loader.h"
#include "core/version/block_payload.h"
#include "core/version/leaf_reader.h"
#include "schema/keys.h"

namespace ckptree::internal {
namespace {

using schema::Space;

// Edit distance, cut off at `limit`: for "did you mean".
std::size_t Distance(std::string_view a, std::string_view b,
                     std::size_t limit) {
  if (a.size() > b.size() + limit || b.size() > a.size() + limit) {
    return limit + 1;
  }
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

// What of its block's value is of `ref`: of coded blocks its part by length.
std::uint64_t StoredBytes(const kv::Database& database,
                          const schema::ChunkRef& ref) {
  if (ref.place != Space::kChunks) return ref.length;
  const std::uint64_t block = ref.block_length;
  const std::uint64_t value =
      database.ValueBytes(ref.place, ChunkKey(ref)).value_or(block);
  return value >= block ? ref.length : value * ref.length / block;
}

constexpr char kStepGoneUrl[] = "ckptree/step-gone";

absl::Status StepGone(const schema::StepRecord& record) {
  absl::Status status = absl::NotFoundError(absl::StrFormat(
      "step %d was deleted or overwritten while it was read", record.step));
  status.SetPayload(kStepGoneUrl, absl::Cord());
  return status;
}

}  // namespace

bool HasStepGone(const absl::Status& status) {
  return status.GetPayload(kStepGoneUrl).has_value();
}

LeafInfo InfoOf(const schema::TreeEntry& entry) {
  LeafInfo info;
  // What a tree holds was checked when it was decoded.
  info.path = Path::Decode(entry.path).value_or(Path());
  info.name = info.path.Text();
  info.kind = entry.kind;
  info.dtype = entry.dtype;
  info.packed = entry.packed;
  info.shape = entry.shape;
  info.tag = entry.tag;
  if (entry.kind == EntryKind::kTie) {
    info.tie_to = Path::Decode(entry.tie_to).value_or(Path());
  }
  return info;
}

namespace {

// Adds one that is cut by `chunk_shape`.
void AddCut(Shape chunk_shape, LeafDetail* detail) {
  const std::size_t before = detail->boxes.size();
  if (before == 0) {
    detail->chunk_shape = std::move(chunk_shape);
    return;
  }
  if (detail->chunk_shapes.empty() && chunk_shape != detail->chunk_shape) {
    detail->chunk_shapes.assign(before, detail->chunk_shape);
  }
  if (!detail->chunk_shapes.empty()) {
    detail->chunk_shapes.push_back(std::move(chunk_shape));
  }
}

// Of the boxes the cut of the largest stands for all.
void ChooseCut(LeafDetail* detail) {
  if (detail->chunk_shapes.empty()) return;
  const auto elements = [](const BoxSpec& box) {
    return ElementCount(box.shape).value_or(0);
  };
  const auto largest = std::ranges::max_element(detail->boxes, {}, elements);
  detail->chunk_shape = detail->chunk_shapes[static_cast<std::size_t>(
      largest - detail->boxes.begin())];
}

}  // namespace

LeafDetail DetailOf(const kv::Database& database,
                    std::span<schema::LeafRecord> records, const Shape* whole) {
  LeafDetail detail;
  std::optional<base::DigestStream> digest;
  if (records.size() > 1) digest.emplace();
  for (schema::LeafRecord& record : records) {
    const base::Digest of_value = schema::ValueDigest(record);
    if (digest.has_value()) {
      digest->Update(of_value.view());
    } else {
      detail.digest = of_value.Hex();
    }
    detail.bytes += record.byte_length;
    if (record.since_version > detail.since_version) {
      detail.since_version = record.since_version;
      detail.since_step = record.since_step;
    }
    for (const Statistics& statistics : record.statistics) {
      if (!detail.statistics.has_value()) detail.statistics.emplace();
      detail.statistics->Merge(statistics);
    }
    detail.chunk_count += record.chunks.size();
    for (const schema::ChunkRef& ref : record.chunks) {
      detail.stored_bytes += StoredBytes(database, ref);
    }
    if (record.boxes.empty() && records.size() > 1 && whole != nullptr) {
      record.boxes.push_back({.start = Shape(whole->size(), 0),
                              .shape = *whole,
                              .chunk_shape = {}});
    }
    detail.boxes.reserve(detail.boxes.size() + record.boxes.size());
    for (schema::Box& box : record.boxes) {
      AddCut(std::move(box.chunk_shape), &detail);
      detail.boxes.push_back({std::move(box.start), std::move(box.shape)});
    }
    if (digest.has_value()) detail.rank_boxes.push_back(record.boxes.size());
  }
  ChooseCut(&detail);
  if (digest.has_value()) detail.digest = digest->Finish().Hex();
  return detail;
}

const Shape& ChunkShapeOf(const LeafDetail& detail, std::size_t box) {
  return detail.chunk_shapes.empty() ? detail.chunk_shape
                                     : detail.chunk_shapes[box];
}

bool CutAlike(const LeafDetail& a, const LeafDetail& b) {
  // A value that is no array is cut at a length that the store has.
  if (a.boxes.empty() && std::max(a.chunk_count, b.chunk_count) > 1) {
    return false;
  }
  return a.chunk_shape == b.chunk_shape && a.boxes == b.boxes &&
         a.chunk_shapes == b.chunk_shapes && a.rank_boxes == b.rank_boxes;
}

StepReader::StepReader(std::shared_ptr<Engine> engine, StepRecordPtr record)
    : engine_(std::move(engine)),
      record_(std::move(record)),
      info_(engine_->catalog().Info(*record_)) {}

absl::StatusOr<std::unique_ptr<StepReader>> StepReader::Open(
    std::shared_ptr<Engine> engine, StepRecordPtr record) {
  std::unique_ptr<StepReader> reader(
      new StepReader(std::move(engine), std::move(record)));
  const std::uint64_t version = reader->record_->version;
  if (reader->engine_->writer() != nullptr) {
    reader->pin_ = VersionPin::Take(&reader->engine_->keeper(), version);
    if (reader->pin_ == nullptr) return StepGone(*reader->record_);
  } else if (reader->engine_->takes_leases()) {
    // Where nobody writes somebody may begin to.
    reader->pin_ = reader->engine_->LeaseVersion(version);
    // In this order: a collector that did not see the lease had the step
    // removed before.
    if (!reader->engine_->holds_listed() &&
        !reader->engine_->StillThere(*reader->record_)) {
      return StepGone(*reader->record_);
    }
  }
  CKPTREE_ASSIGN_OR_RETURN(
      const std::vector<schema::PartRecord> parts,
      PartsOf(reader->engine_->database(), *reader->record_));
  for (const schema::PartRecord& part : parts) {
    absl::StatusOr<std::shared_ptr<const StepTree>> tree =
        reader->engine_->Tree(part.tree);
    if (!tree.ok()) return reader->Annotate(tree.status());
    if ((*tree)->leaf_count() != part.map.size()) {
      return reader->Annotate(absl::DataLossError(
          absl::StrFormat("part %d: its tree has %d leaves, its map %d",
                          part.part, (*tree)->leaf_count(), part.map.size())));
    }
    reader->parts_.push_back({part.part, *std::move(tree), part.map.Unpack()});
  }
  return reader;
}

absl::Status StepReader::Annotate(const absl::Status& status) const {
  if (status.ok()) return status;
  // What another process collected looks like damage.
  if (engine_->writer() == nullptr &&
      (absl::IsDataLoss(status) || absl::IsNotFound(status)) &&
      !engine_->StillThere(*record_)) {
    return StepGone(*record_);
  }
  return base::WithText(
      status, absl::StrFormat("step %s: %s", step_name(), status.message()));
}

absl::StatusOr<StepMetadata> StepReader::Metadata() const {
  CKPTREE_RETURN_IF_ERROR(engine_->CheckUsable());
  CKPTREE_ASSIGN_OR_RETURN(
      const std::optional<std::string> bytes,
      engine_->database().Get(Space::kRecords,
                              schema::StepMetaKey(record_->version)));
  if (!bytes.has_value()) {
    return Annotate(absl::DataLossError("its metadata is missing"));
  }
  CKPTREE_ASSIGN_OR_RETURN(schema::StepMeta meta,
                           schema::DecodeStepMeta(*bytes));
  StepMetadata metadata;
  metadata.custom = std::move(meta.custom_metadata);
  metadata.lineage = std::move(meta.lineage);
  for (schema::PartOrigin& origin : meta.origins) {
    PartInfo& part = metadata.parts.emplace_back();
    part.rank = origin.part;
    part.host = std::move(origin.host);
    part.pid = origin.pid;
    part.bytes = origin.bytes;
    part.new_bytes = origin.new_bytes;
    part.duration =
        absl::Nanoseconds(static_cast<std::int64_t>(origin.nanoseconds));
  }
  std::map<std::string, std::string> items;
  for (const Part& part : parts_) {
    std::string begins;  // The item of the entry before, encoded.
    CKPTREE_RETURN_IF_ERROR(
        part.tree->ForEach("", [&](const StepTree::Entry& entry) {
          if (!begins.empty() && entry.entry->path.starts_with(begins)) return;
          const Path path = Path::Decode(entry.entry->path).value_or(Path());
          if (path.empty()) return;
          const PathPart& item = path.parts().front();
          begins = Path({item}).Encode();
          if (const auto* name = std::get_if<std::string>(&item.key.value)) {
            items.emplace(*name, Name(schema::ItemKind::kTree));
          }
        }));
  }
  for (const auto& [name, kind] : meta.items) {
    items[name] = std::string(Name(kind));
  }
  metadata.items.assign(items.begin(), items.end());
  return metadata;
}

absl::StatusOr<std::vector<LeafInfo>> StepReader::Leaves(
    std::string_view glob) const {
  CKPTREE_RETURN_IF_ERROR(engine_->CheckUsable());
  CKPTREE_RETURN_IF_ERROR(ValidateGlob(glob));
  if (parts_.size() == 1) {
    const StepTree& tree = *parts_[0].tree;
    return LeavesOf(tree, 0, tree.page_count(), glob);
  }
  std::vector<LeafInfo> leaves;
  std::map<std::string, LeafInfo> merged;  // By encoded path: tree order.
  for (const Part& part : parts_) {
    CKPTREE_RETURN_IF_ERROR(Annotate(
        part.tree->ForEach("", [&merged](const StepTree::Entry& entry) {
          merged.try_emplace(entry.entry->path, InfoOf(*entry.entry));
        })));
  }
  for (auto& [path, info] : merged) {
    if (glob.empty() || MatchesGlob(glob, info.name)) {
      leaves.push_back(std::move(info));
    }
  }
  return leaves;
}

absl::Status StepReader::NoSuchPath(const Path& path) const {
  const std::string name = path.Text();
  const std::size_t limit = std::max<std::size_t>(3, name.size() / 4);
  std::string closest;
  std::size_t best = limit + 1;
  const absl::StatusOr<std::vector<LeafInfo>> leaves = Leaves("");
  if (leaves.ok() && leaves->size() <= 100000) {
    const std::vector<std::string> below = LeavesBelow(*leaves, path);
    if (!below.empty()) {
      return absl::NotFoundError(absl::StrFormat(
          "step %s has no leaf %s: it is a subtree of %d %s; name one, as %s",
          step_name(), name, below.size(),
          below.size() == 1 ? "leaf" : "leaves", below.front()));
    }
    for (const LeafInfo& leaf : *leaves) {
      const std::size_t distance = Distance(name, leaf.name, limit);
      if (distance < best) {
        best = distance;
        closest = leaf.name;
      }
    }
  }
  return absl::NotFoundError(absl::StrFormat(
      "step %s has no leaf %s%s", step_name(), name,
      closest.empty() ? "" : "; did you mean " + closest + "?"));
}

absl::StatusOr<StepReader::Found> StepReader::Lookup(const Path& path) const {
  std::string encoded = path.Encode();
  for (int hop = 0; hop < 2; ++hop) {
    Found found;
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      absl::StatusOr<std::optional<StepTree::Entry>> at =
          parts_[p].tree->Find(encoded);
      if (!at.ok()) return Annotate(at.status());
      if (!at->has_value()) continue;
      const StepTree::Entry& there = **at;
      if (IsLeaf(there.entry->kind)) {
        found.places.push_back({.part = p, .ordinal = there.ordinal});
      }
      if (found.entry == nullptr) {
        found.entry = {there.page, there.entry};
      }
    }
    if (found.entry == nullptr) return NoSuchPath(path);
    if (found.entry->kind == EntryKind::kTie && hop == 0) {
      encoded = found.entry->tie_to;
      continue;
    }
    return found;
  }
  return Annotate(
      absl::DataLossError(absl::StrFormat("%s is tied to a tie", path.Text())));
}

absl::StatusOr<std::optional<LeafInfo>> StepReader::Find(
    const Path& path) const {
  CKPTREE_RETURN_IF_ERROR(engine_->CheckUsable());
  const std::string encoded = path.Encode();
  for (const Part& part : parts_) {
    absl::StatusOr<std::optional<StepTree::Entry>> found =
        part.tree->Find(encoded);
    if (!found.ok()) return Annotate(found.status());
    if (found->has_value()) return InfoOf(*(*found)->entry);
  }
  return std::nullopt;
}

std::optional<StepReader::RecordName> StepReader::RecordOf(
    std::string_view encoded) const {
  if (parts_.size() != 1) return std::nullopt;
  const Part& part = parts_[0];
  const auto found = part.tree->Find(encoded);
  if (!found.ok() || !found->has_value() || !IsLeaf((*found)->entry->kind)) {
    return std::nullopt;
  }
  const schema::MapRun run = part.map.At((*found)->ordinal);
  return RecordName{part.tree->digest(), run.place, run.version, run.source};
}

absl::StatusOr<StepReader::Found> StepReader::LookupValue(
    const Path& path) const {
  CKPTREE_RETURN_IF_ERROR(engine_->CheckUsable());
  CKPTREE_ASSIGN_OR_RETURN(Found found, Lookup(path));
  if (!IsLeaf(found.entry->kind)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("step %s: %s is of kind %s: it has no value",
                        step_name(), path.Text(), Name(found.entry->kind)));
  }
  return found;
}

LeafOfStep StepReader::At(const Place& place) const {
  const Part& part = parts_[place.part];
  return {.tree = *part.tree,
          .map = part.map,
          .version = record_->version,
          .part = part.part,
          .ordinal = place.ordinal};
}

bool StepReader::ReadProved(const Found& found,
                            std::span<std::byte> destination,
                            PackGuesses::Trial* trial) const {
  // What is proved is said of a step of one part.
  if (parts_.size() != 1 || found.places.size() != 1 ||
      found.entry->kind != EntryKind::kArray ||
      !engine_->pack_guesses().ReadProved(engine_->database(),
                                          At(found.places[0]), record_->digest,
                                          destination, trial)) {
    return false;
  }
  engine_->CountRead(destination.size());
  return true;
}

absl::StatusOr<StepReader::Located> StepReader::Locate(const Path& path) const {
  CKPTREE_ASSIGN_OR_RETURN(Found found, LookupValue(path));
  return LocateFound(path, std::move(found), {});
}

absl::StatusOr<StepReader::Located> StepReader::LocateFound(
    const Path& path, Found found, const PackGuesses::Trial& trial) const {
  Located located;
  located.entry = std::move(found.entry);
  located.records.reserve(found.places.size());
  for (const Place& place : found.places) {
    const Part& part = parts_[place.part];
    absl::StatusOr<schema::LeafRecord> record =
        engine_->pack_guesses().ReadWith(
            engine_->database(), At(place), parts_.size() == 1, trial, [&] {
              return ReadLeaf(engine_->database(), part.part,
                              part.map.At(place.ordinal));
            });
    if (!record.ok()) {
      return Annotate(base::WithText(
          record.status(),
          absl::StrFormat("%s: %s", path.Text(), record.status().message())));
    }
    located.records.push_back(*std::move(record));
  }
  return located;
}

absl::StatusOr<LeafDetail> StepReader::DetailOf(const RecordName& name) const {
  CKPTREE_RETURN_IF_ERROR(engine_->CheckUsable());
  absl::StatusOr<schema::LeafRecord> record = ReadLeaf(
      engine_->database(), parts_[0].part,
      {.place = name.place, .version = name.version, .source = name.source});
  if (!record.ok()) return Annotate(record.status());
  return internal::DetailOf(engine_->database(), std::span(&*record, 1));
}

absl::Status StepReader::AddRead(const Path& path,
                                 const std::optional<BoxSpec>& asked,
                                 std::span<std::byte> destination,
                                 const schema::TreeEntry& entry,
                                 std::span<const schema::LeafRecord> records,
                                 ReadPlan* plan) const {
  if (!IsLeaf(entry.kind)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("step %s: %s is of kind %s: it has no value",
                        step_name(), path.Text(), Name(entry.kind)));
  }
  if (destination.data() == nullptr && !destination.empty()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("step %s: %s: a destination of %d bytes that is null",
                        step_name(), path.Text(), destination.size()));
  }
  if (entry.kind != EntryKind::kArray) {
    if (asked.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("step %s: %s is of kind %s: only arrays have boxes",
                          step_name(), path.Text(), Name(entry.kind)));
    }
    if (records.size() != 1) {
      return Annotate(absl::DataLossError(
          absl::StrFormat("%s is in %d parts", path.Text(), records.size())));
    }
    return Annotate(plan->AddValue(path, records[0], destination));
  }
  BoxSpec box = asked.value_or(
      BoxSpec{std::vector<std::int64_t>(entry.shape.size(), 0), entry.shape});
  if (absl::Status status = CheckBox(box.start, box.shape, entry.shape);
      !status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("step %s: box %s+%s of %s %s: %s", step_name(),
                        ShapeText(box.start), ShapeText(box.shape), path.Text(),
                        ShapeText(entry.shape), status.message()));
  }
  if (entry.packed && box.shape != entry.shape) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "step %s: %s is packed: read it whole", step_name(), path.Text()));
  }
  const std::int64_t bytes =
      ArrayBytes(entry.dtype, entry.packed, box.shape).value_or(-1);
  if (bytes < 0 || destination.size() != static_cast<std::uint64_t>(bytes)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("step %s: %s %s of %s has %d bytes, the destination %d",
                        step_name(), path.Text(), ShapeText(box.shape),
                        Name(entry.dtype), bytes, destination.size()));
  }
  std::int64_t found = 0;
  for (const schema::LeafRecord& record : records) {
    absl::StatusOr<std::int64_t> part =
        plan->AddArray(path, entry, record, box, destination);
    if (!part.ok()) return Annotate(part.status());
    found += *part;
  }
  if (found != ElementCount(box.shape)) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "step %s: %s: the boxes that were saved hold %d of the %d elements of "
        "%s+%s",
        step_name(), path.Text(), found, *ElementCount(box.shape),
        ShapeText(box.start), ShapeText(box.shape)));
  }
  return absl::OkStatus();
}

absl::StatusOr<LeafValue> StepReader::Value(const Path& path) const {
  CKPTREE_ASSIGN_OR_RETURN(Found found, LookupValue(path));
  LeafValue value;
  value.info = InfoOf(*found.entry);
  const bool is_array = found.entry->kind == EntryKind::kArray;
  if (is_array) {
    value.bytes.resize(static_cast<std::size_t>(
        ArrayBytes(found.entry->dtype, found.entry->packed, found.entry->shape)
            .value_or(0)));
  }
  PackGuesses::Trial trial;
  if (ReadProved(found, value.bytes, &trial)) return value;
  CKPTREE_ASSIGN_OR_RETURN(const Located located,
                           LocateFound(path, std::move(found), trial));
  if (!is_array) {
    std::uint64_t bytes = 0;
    for (const schema::LeafRecord& record : located.records) {
      bytes += record.byte_length;
    }
    value.bytes.resize(bytes);
  }
  const ReadOptions unwatched;
  ReadPlan plan(engine_->database(), unwatched);
  CKPTREE_RETURN_IF_ERROR(AddRead(path, std::nullopt, value.bytes,
                                  *located.entry, located.records, &plan));
  absl::Status status;
  engine_->arena().execute(
      [&] { status = plan.Run(engine_->options().threads); });
  engine_->CountRead(plan.bytes_read());
  CKPTREE_RETURN_IF_ERROR(Annotate(status));
  return value;
}

}  // namespace ckptree::internal
