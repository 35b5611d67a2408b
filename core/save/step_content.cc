// SPDX-License-Identifier: Apache-2.0

#include "core/save/step_content.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "core/array/chunk_grid.h"
#include "core/array/pack_layout.h"
#include "core/save/nearly_sorted.h"
#include "schema/json_text.h"
#include "schema/limits.h"
#include "schema/path_encoding.h"
#include "schema/quoted_text.h"
#include "schema/utf8.h"

namespace ckptree::internal {
namespace {

// It is written with every save, beside what a listing reads.
constexpr std::size_t kMaxLineageBytes = 1 << 20;

template <typename... Args>
absl::Status Invalid(const absl::FormatSpec<Args...>& format,
                     const Args&... args) {
  return absl::InvalidArgumentError(absl::StrFormat(format, args...));
}

std::string TagText(const std::string& tag) {
  return tag.empty() ? "" : absl::StrFormat(" with the tag %s", tag);
}

// As Path::Validate(), which says what is wrong; the path, encoded.
bool Encodes(const Path& path, std::string* encoded) {
  encoded->clear();
  for (const PathPart& part : path.parts()) {
    if (schema::PartFault(part) != nullptr) return false;
    schema::AppendPartBytes(part, encoded);
  }
  return path.parts().size() <= std::size_t{schema::kMaxPathDepth} &&
         encoded->size() <= std::size_t{schema::kMaxPathBytes};
}

absl::Status CheckPath(const Path& path, std::string* encoded) {
  if (path.empty()) {
    return Invalid("a leaf needs a path: the empty one names the whole step");
  }
  if (!Encodes(path, encoded)) {
    return Invalid("%s: %s", schema::Quoted(path.Text()),
                   path.Validate().message());
  }
  const PathPart& item = path.parts().front();
  const auto* name = std::get_if<std::string>(&item.key.value);
  if (item.kind != PartKind::kDictKey || name == nullptr) {
    return Invalid(
        "%s: the first part names an item and must be a plain string key",
        path.Text());
  }
  if (static_cast<std::int64_t>(name->size()) > schema::kMaxNameBytes) {
    return Invalid("%s: the item's name is longer than %d bytes", path.Text(),
                   schema::kMaxNameBytes);
  }
  return absl::OkStatus();
}

// The name of a leaf, made when a message needs it: there may be a million
// leaves and seldom a message.
struct PathName {
  const Path& path;

  friend absl::FormatConvertResult<absl::FormatConversionCharSet::s>
  AbslFormatConvert(const PathName& name, const absl::FormatConversionSpec&,
                    absl::FormatSink* sink) {
    sink->Append(name.path.Text());
    return {true};
  }
};

absl::Status CheckText(const char* what, std::string_view text) {
  if (schema::IsUtf8(text)) return absl::OkStatus();
  return Invalid("%s is UTF-8: %s is not", what, schema::Quoted(text));
}

// True where the strided elements of `tensor` stay inside size_bytes, the first
// byte being the lowest address that the strides reach, and inside of what can
// be addressed where that is not known.
bool StridesFit(const Tensor& tensor, std::int64_t element_bytes) {
  std::int64_t span = element_bytes;
  if (std::count(tensor.shape.begin(), tensor.shape.end(), 0) > 0) return true;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    std::int64_t extent = 0;
    if (__builtin_mul_overflow(tensor.shape[i] - 1, tensor.strides[i],
                               &extent)) {
      return false;
    }
    if (extent == std::numeric_limits<std::int64_t>::min()) return false;
    if (__builtin_add_overflow(span, extent < 0 ? -extent : extent, &span)) {
      return false;
    }
  }
  return tensor.size_bytes == 0 ||
         static_cast<std::uint64_t>(span) <= tensor.size_bytes;
}

bool IsDense(const Tensor& tensor, std::int64_t element_bytes) {
  std::int64_t expected = element_bytes;
  for (std::size_t i = tensor.shape.size(); i-- > 0;) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

absl::Status CheckTag(const Path& path, std::string_view tag) {
  if (static_cast<std::int64_t>(tag.size()) <= schema::kMaxEntryTagBytes) {
    return absl::OkStatus();
  }
  return Invalid("%s: a tag of %d bytes: at most %d", path.Text(), tag.size(),
                 schema::kMaxEntryTagBytes);
}

}  // namespace

absl::Status ContentBuilder::AddTensor(const Path& path, Tensor tensor,
                                       Ownership ownership) {
  CKPTREE_RETURN_IF_ERROR(CheckPath(path, &encoded_));
  const bool plain = tensor.start.empty() && tensor.global_shape.empty() &&
                     tensor.strides.empty() && tensor.chunk_shape.empty() &&
                     !tensor.copy && tensor.size_bytes == 0 &&
                     tensor.data != nullptr;
  if (plain && last_ != nullptr && last_->entry.dtype == tensor.dtype &&
      last_->entry.packed == tensor.packed &&
      last_->entry.shape == tensor.shape && last_->entry.tag == tensor.tag) {
    SourceLeaf& leaf = leaves_.emplace_back();
    leaf.path = storage_->bytes.Keep(encoded_);
    leaf.of_type = last_;
    leaf.byte_length = last_->bytes;
    leaf.only = {&last_->whole, static_cast<const std::byte*>(tensor.data),
                 nullptr, ownership == Ownership::kBorrow};
    leaf.box_count = 1;
    return absl::OkStatus();
  }
  const PathName name{path};
  if (!IsKnown(tensor.dtype)) {
    return Invalid("%s: dtype %d is no element type", name,
                   static_cast<int>(tensor.dtype));
  }
  if (tensor.packed && !IsSubByte(tensor.dtype)) {
    return Invalid("%s: %s is not stored packed", name, Name(tensor.dtype));
  }
  const bool whole = tensor.global_shape.empty() && tensor.start.empty();
  if (whole) {
    tensor.global_shape = tensor.shape;
    tensor.start.assign(tensor.shape.size(), 0);
  }
  const auto total =
      ArrayBytes(tensor.dtype, tensor.packed, tensor.global_shape);
  const auto bytes = ArrayBytes(tensor.dtype, tensor.packed, tensor.shape);
  // Also beside an axis of 0.
  const bool too_long = std::any_of(
      tensor.global_shape.begin(), tensor.global_shape.end(),
      [](std::int64_t dim) { return dim > schema::kMaxArrayBytes; });
  if (!total.has_value() || !bytes.has_value() || too_long) {
    return Invalid(
        "%s: shape %s of %s is not possible: more than %d dimensions, a "
        "negative one, or more than 2^56 elements or bytes",
        name, ShapeText(tensor.global_shape), Name(tensor.dtype),
        schema::kMaxDims);
  }
  if (absl::Status status =
          CheckBox(tensor.start, tensor.shape, tensor.global_shape);
      !status.ok()) {
    return Invalid("%s: box %s of %s: %s", name, ShapeText(tensor.start),
                   ShapeText(tensor.global_shape), status.message());
  }
  if (tensor.packed && !whole) {
    return Invalid("%s: a packed array cannot be given by boxes", name);
  }
  if (*bytes > 0 && tensor.data == nullptr && !tensor.copy) {
    return Invalid("%s: no data for %d bytes", name, *bytes);
  }
  if (tensor.data != nullptr && tensor.copy) {
    return Invalid("%s: data and a copy function: give one of them", name);
  }
  SourceAccess access;
  const std::int64_t element_bytes =
      tensor.packed ? 1 : (BitWidth(tensor.dtype) + 7) / 8;
  if (!tensor.strides.empty()) {
    if (tensor.copy) return Invalid("%s: strides with a copy function", name);
    if (tensor.packed) return Invalid("%s: strides of a packed array", name);
    if (tensor.strides.size() != tensor.shape.size()) {
      return Invalid("%s: %d strides for %d dimensions", name,
                     tensor.strides.size(), tensor.shape.size());
    }
    if (!StridesFit(tensor, element_bytes)) {
      return tensor.size_bytes == 0
                 ? Invalid("%s: the strides leave what can be addressed", name)
                 : Invalid("%s: the strides leave the buffer of %d bytes", name,
                           tensor.size_bytes);
    }
    if (!IsDense(tensor, element_bytes)) access.strides = tensor.strides;
  } else if (tensor.size_bytes != 0 && !tensor.copy &&
             tensor.size_bytes < static_cast<std::uint64_t>(*bytes)) {
    return Invalid("%s: %d bytes given, shape %s of %s has %d", name,
                   tensor.size_bytes, ShapeText(tensor.shape),
                   Name(tensor.dtype), *bytes);
  }
  CKPTREE_RETURN_IF_ERROR(CheckTag(path, tensor.tag));
  schema::TreeEntry entry;
  entry.kind = EntryKind::kArray;
  entry.dtype = tensor.dtype;
  entry.packed = tensor.packed;
  entry.shape = std::move(tensor.global_shape);
  entry.tag = std::move(tensor.tag);
  SourceLeaf leaf;
  leaf.of_type =
      types_.Of(std::move(entry), static_cast<std::uint64_t>(*total));
  leaf.only.box = &leaf.of_type->whole;
  if (!whole || !tensor.chunk_shape.empty()) {
    schema::Box box;
    box.chunk_shape =
        DefaultChunkShape(tensor.dtype, tensor.packed, tensor.shape,
                          static_cast<std::int64_t>(chunk_bytes_));
    box.start = std::move(tensor.start);
    box.shape = std::move(tensor.shape);
    if (!tensor.chunk_shape.empty()) {
      const auto chunk =
          ArrayBytes(tensor.dtype, tensor.packed, tensor.chunk_shape);
      const bool positive =
          std::all_of(tensor.chunk_shape.begin(), tensor.chunk_shape.end(),
                      [](std::int64_t d) { return d >= 1; });
      if (tensor.chunk_shape.size() != box.shape.size() || !positive ||
          tensor.packed || !chunk.has_value() ||
          *chunk > schema::kMaxChunkBytes) {
        return Invalid(
            "%s: chunk shape %s of %s%s is not possible: it has as many "
            "dimensions, each at least 1, and at most %d bytes; arrays of less "
            "than a byte an element take none",
            name, ShapeText(tensor.chunk_shape), Name(tensor.dtype),
            ShapeText(box.shape), schema::kMaxChunkBytes);
      }
      box.chunk_shape = std::move(tensor.chunk_shape);
      if (tensor.copy && !ChunkGrid(box).contiguous()) {
        return Invalid("%s: a copy function needs chunks of whole rows", name);
      }
    }
    leaf.only.box = &storage_->boxes.emplace_back(std::move(box));
  }
  if (tensor.packed && *bytes > schema::kMaxChunkBytes) {
    const std::int64_t chunk =
        ArrayBytes(tensor.dtype, true, leaf.only.box->chunk_shape).value_or(0);
    if (chunk > schema::kMaxChunkBytes) {
      return Invalid(
          "%s: packed %s of shape %s: its rows end within a byte, so that it "
          "would be one chunk of %d bytes, at most %d: put it unpacked, or in "
          "a shape whose rows end on bytes",
          name, Name(tensor.dtype), ShapeText(leaf.only.box->shape), chunk,
          schema::kMaxChunkBytes);
    }
  }
  leaf.only.data = static_cast<const std::byte*>(tensor.data);
  leaf.only.borrow = ownership == Ownership::kBorrow;
  if (tensor.copy || !access.strides.empty()) {
    access.copy = std::move(tensor.copy);
    leaf.only.access = &storage_->accesses.emplace_back(std::move(access));
  }
  leaf.box_count = 1;
  leaf.byte_length = static_cast<std::uint64_t>(*bytes);
  leaf.by_box = !whole;
  leaf.path = storage_->bytes.Keep(encoded_);
  leaves_.push_back(leaf);
  if (plain) last_ = leaf.of_type;
  return absl::OkStatus();
}

absl::Status ContentBuilder::AddValue(const Path& path, EntryKind kind,
                                      std::string bytes, std::string tag) {
  CKPTREE_RETURN_IF_ERROR(CheckPath(path, &encoded_));
  SourceLeaf leaf;
  leaf.path = storage_->bytes.Keep(encoded_);
  if ((kind == EntryKind::kStr || kind == EntryKind::kJson) &&
      !schema::IsUtf8(bytes)) {
    return Invalid("%s: a %s is UTF-8; put other bytes as bytes", path.Text(),
                   Name(kind));
  }
  if (kind == EntryKind::kJson && !as_stored_) {
    if (absl::Status status = schema::CheckJson(bytes); !status.ok()) {
      return Invalid("%s: %s", path.Text(), status.message());
    }
  }
  if (last_value_ == nullptr || last_value_->entry.kind != kind ||
      last_value_->entry.tag != tag) {
    CKPTREE_RETURN_IF_ERROR(CheckTag(path, tag));
    schema::TreeEntry entry;
    entry.kind = kind;
    entry.tag = std::move(tag);
    last_value_ = types_.Of(std::move(entry), 0);
  }
  leaf.of_type = last_value_;
  leaf.byte_length = bytes.size();
  leaf.bytes = storage_->bytes.Keep(std::move(bytes)).data();
  leaves_.push_back(leaf);
  return absl::OkStatus();
}

absl::Status ContentBuilder::AddNode(const Path& path, EntryKind kind,
                                     std::string tag) {
  CKPTREE_RETURN_IF_ERROR(CheckPath(path, &encoded_));
  CKPTREE_RETURN_IF_ERROR(CheckTag(path, tag));
  schema::TreeEntry entry;
  entry.path = encoded_;
  entry.kind = kind;
  entry.tag = std::move(tag);
  nodes_.push_back(std::move(entry));
  return absl::OkStatus();
}

absl::Status ContentBuilder::AddTie(const Path& path, const Path& target) {
  schema::TreeEntry entry;
  CKPTREE_RETURN_IF_ERROR(CheckPath(path, &entry.path));
  CKPTREE_RETURN_IF_ERROR(CheckPath(target, &entry.tie_to));
  entry.kind = EntryKind::kTie;
  if (entry.path == entry.tie_to) {
    return Invalid("%s is tied to itself", path.Text());
  }
  // Of what was put so far: a target may come later.
  for (; known_nodes_ < nodes_.size(); ++known_nodes_) {
    node_paths_.insert(nodes_[known_nodes_].path);
  }
  if (node_paths_.contains(entry.path)) {
    return Invalid("%s was put twice", path.Text());
  }
  if (node_paths_.contains(entry.tie_to)) {
    return Invalid("%s is tied to %s, which is no leaf", path.Text(),
                   target.Text());
  }
  nodes_.push_back(std::move(entry));
  return absl::OkStatus();
}

absl::Status ContentBuilder::SetItem(std::string_view name,
                                     schema::ItemKind kind) {
  if (name.empty() ||
      static_cast<std::int64_t>(name.size()) > schema::kMaxNameBytes) {
    return Invalid("an item's name has 1 to %d bytes", schema::kMaxNameBytes);
  }
  CKPTREE_RETURN_IF_ERROR(CheckText("an item's name", name));
  for (auto& [known, old] : content_.items) {
    if (known == name) {
      old = kind;
      return absl::OkStatus();
    }
  }
  content_.items.emplace_back(name, kind);
  return absl::OkStatus();
}

absl::Status ContentBuilder::SetMetric(std::string_view name, double value) {
  if (name.empty() ||
      static_cast<std::int64_t>(name.size()) > schema::kMaxNameBytes) {
    return Invalid("a metric's name has 1 to %d bytes", schema::kMaxNameBytes);
  }
  CKPTREE_RETURN_IF_ERROR(CheckText("a metric's name", name));
  for (auto& [known, old] : content_.metrics) {
    if (known == name) {
      old = value;
      return absl::OkStatus();
    }
  }
  if (content_.metrics.size() >= schema::kMaxMetrics) {
    return Invalid(
        "a step has at most %d metrics, and '%s' is one more: put what no step "
        "is chosen by into its metadata",
        schema::kMaxMetrics, name);
  }
  CKPTREE_RETURN_IF_ERROR(CheckSaid(1, name.size(), content_.note));
  content_.metrics.emplace_back(name, value);
  return absl::OkStatus();
}

absl::Status ContentBuilder::CheckSaid(std::size_t more_metrics,
                                       std::size_t more_bytes,
                                       std::string_view note) const {
  // What an older engine took is taken where it has room.
  if (as_stored_) return absl::OkStatus();
  std::size_t bytes = more_bytes + note.size();
  for (const auto& [name, value] : content_.metrics) bytes += name.size();
  const std::size_t metrics = content_.metrics.size() + more_metrics;
  bytes += metrics * std::size_t{schema::kMetricBytes};
  if (bytes <= std::size_t{schema::kMaxMetricsAndNoteBytes}) {
    return absl::OkStatus();
  }
  return Invalid(
      "the metrics and the note have %d bytes together, at most %d (of each of "
      "the %d metrics its name and %d more, of the note %d): give them shorter "
      "names, or put what no step is chosen by into its metadata",
      bytes, schema::kMaxMetricsAndNoteBytes, metrics, schema::kMetricBytes,
      note.size());
}

absl::Status ContentBuilder::SetCustomMetadata(std::string json) {
  if (static_cast<std::int64_t>(json.size()) >
      schema::kMaxCustomMetadataBytes) {
    return Invalid("custom metadata of %d bytes: at most %d", json.size(),
                   schema::kMaxCustomMetadataBytes);
  }
  CKPTREE_RETURN_IF_ERROR(CheckText("custom metadata", json));
  if (!json.empty() && !as_stored_) {
    if (absl::Status status = schema::CheckJson(json); !status.ok()) {
      return Invalid("custom metadata: %s", status.message());
    }
  }
  content_.custom_metadata = std::move(json);
  return absl::OkStatus();
}

absl::Status ContentBuilder::SetNote(std::string_view text) {
  if (static_cast<std::int64_t>(text.size()) > schema::kMaxNoteBytes) {
    return Invalid("a note of %d bytes: at most %d", text.size(),
                   schema::kMaxNoteBytes);
  }
  CKPTREE_RETURN_IF_ERROR(CheckText("a note", text));
  CKPTREE_RETURN_IF_ERROR(CheckSaid(0, 0, text));
  content_.note = std::string(text);
  return absl::OkStatus();
}

absl::Status ContentBuilder::SetLineage(std::string_view name,
                                        std::string text) {
  if (name.empty() ||
      static_cast<std::int64_t>(name.size()) > schema::kMaxNameBytes) {
    return Invalid("a name of lineage has 1 to %d bytes",
                   schema::kMaxNameBytes);
  }
  CKPTREE_RETURN_IF_ERROR(CheckText("a name of lineage", name));
  if (text.size() > kMaxLineageBytes) {
    return Invalid("lineage %s of %d bytes: at most %d", name, text.size(),
                   kMaxLineageBytes);
  }
  CKPTREE_RETURN_IF_ERROR(CheckText("lineage", text));
  for (auto& [known, old] : content_.lineage) {
    if (known == name) {
      old = std::move(text);
      return absl::OkStatus();
    }
  }
  content_.lineage.emplace_back(name, std::move(text));
  return absl::OkStatus();
}

absl::Status ContentBuilder::AddBoxTo(SourceLeaf* first,
                                      const SourceLeaf& second) {
  CKPTREE_ASSIGN_OR_RETURN(const Path path, Path::Decode(second.path));
  if (second.entry().kind != EntryKind::kArray ||
      first->entry().kind != EntryKind::kArray) {
    return Invalid("%s was put twice", path.Text());
  }
  if (second.of_type != first->of_type) {
    return Invalid(
        "%s was put twice: %s of shape %s%s and %s of shape %s%s; boxes of one "
        "array have its element type, global_shape and tag",
        path.Text(), Name(first->entry().dtype),
        ShapeText(first->entry().shape), TagText(first->entry().tag),
        Name(second.entry().dtype), ShapeText(second.entry().shape),
        TagText(second.entry().tag));
  }
  const schema::Box& box = *second.only.box;
  for (const SourceBox& other : first->boxes()) {
    if (BoxesOverlap(box, *other.box) || box.shape == second.entry().shape) {
      return Invalid("%s: boxes at %s and %s overlap, or it was put twice",
                     path.Text(), ShapeText(other.box->start),
                     ShapeText(box.start));
    }
  }
  if (first->many == nullptr) storage_->many.push_back({first->only});
  std::vector<SourceBox>& boxes = storage_->many.back();
  boxes.push_back(second.only);
  first->many = boxes.data();
  ++first->box_count;
  first->byte_length += second.byte_length;
  return absl::OkStatus();
}

absl::Status ContentBuilder::MergeBoxes() {
  // In place, up to `kept`: leaves are given once each by most callers, and
  // none is moved.
  std::size_t kept = 0;
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    const SourceLeaf& leaf = leaves_[i];
    if (i == 0 || leaves_[kept - 1].path != leaf.path) {
      if (kept != i) leaves_[kept] = leaf;
      ++kept;
      continue;
    }
    CKPTREE_RETURN_IF_ERROR(AddBoxTo(&leaves_[kept - 1], leaf));
  }
  leaves_.resize(kept);
  // Boxes in a canonical order: the same state gives the same record.
  for (std::vector<SourceBox>& boxes : storage_->many) {
    std::sort(boxes.begin(), boxes.end(),
              [](const SourceBox& a, const SourceBox& b) {
                return a.box->start < b.box->start;
              });
  }
  return absl::OkStatus();
}

absl::StatusOr<StepContent> ContentBuilder::Finish() && {
  const auto by_path = [](const SourceLeaf& a, const SourceLeaf& b) {
    return a.path < b.path;
  };
  // Most callers put leaves in tree order, or those of a container after each
  // other; moving them costs.
  if (!std::is_sorted(leaves_.begin(), leaves_.end(), by_path)) {
    SortNearlySorted(&leaves_, by_path);
  }
  CKPTREE_RETURN_IF_ERROR(MergeBoxes());
  StepContent content = std::move(content_);
  content.leaves = std::move(leaves_);
  if (of_rank()) KeepOwn(&content);
  if (static_cast<std::int64_t>(content.leaves.size()) > schema::kMaxLeaves) {
    return Invalid("%d leaves: a step has at most %d", content.leaves.size(),
                   schema::kMaxLeaves);
  }
  for (SourceLeaf& leaf : content.leaves) {
    if (leaf.box_count > 1) {
      leaf.form = LeafForm::kChunked;
    } else if (leaf.byte_length <= schema::kMaxInlineBytes && leaf.is_whole()) {
      leaf.form = LeafForm::kInline;
    } else if (leaf.byte_length < kPackedLeafBytes &&
               (leaf.box_count == 0 || schema::ChunkCount(leaf.box(0)) == 1)) {
      leaf.form = LeafForm::kPacked;
    } else {
      leaf.form = LeafForm::kChunked;
    }
    content.bytes += leaf.byte_length;
  }

  std::vector<schema::NamedEntry> entries;
  entries.reserve(content.leaves.size() + nodes_.size());
  for (const SourceLeaf& leaf : content.leaves) {
    entries.push_back({leaf.path, &leaf.entry()});
  }
  if (!nodes_.empty()) {
    for (const schema::TreeEntry& node : nodes_) {
      entries.push_back({node.path, &node});
    }
    const auto first_node =
        entries.end() - static_cast<std::ptrdiff_t>(nodes_.size());
    const auto by_name = [](const schema::NamedEntry& a,
                            const schema::NamedEntry& b) {
      return a.path < b.path;
    };
    std::sort(first_node, entries.end(), by_name);
    std::inplace_merge(entries.begin(), first_node, entries.end(), by_name);
  }
  CKPTREE_ASSIGN_OR_RETURN(schema::EncodedTree tree,
                           schema::EncodeTreeOf(entries));
  content.tree = std::make_shared<const schema::EncodedTree>(std::move(tree));
  content.storage = std::move(storage_);
  return content;
}

}  // namespace ckptree::internal
