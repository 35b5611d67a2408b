// SPDX-License-Identifier: Apache-2.0

// The public face of one step.

#include "ckptree/step.h"

#include <cstring>
#include <map>
#include <type_traits>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "base/status_text.h"
#include "core/array/chunk_grid.h"
#include "core/engine/step_reader.h"
#include "core/process/guarded_call.h"
#include "core/version/block_payload.h"
#include "schema/keys.h"

namespace ckptree {

using internal::GuardedResult;
using internal::StepReader;

// ---- LeafValue ----

namespace {

absl::Status WrongKind(const LeafInfo& info, std::string_view asked) {
  const std::string is =
      info.kind == EntryKind::kArray
          ? absl::StrFormat("an array of %s", Name(info.dtype))
          : absl::StrFormat("of kind %s", Name(info.kind));
  return absl::FailedPreconditionError(
      absl::StrFormat("%s is %s, and was read as %s", info.name, is, asked));
}

// The value of a leaf of `kind`, of which T has the bytes.
template <typename T>
absl::StatusOr<T> Number(const LeafValue& value, EntryKind kind) {
  T number{};
  if (value.info.kind != kind || value.bytes.size() != sizeof(number)) {
    return WrongKind(value.info, Name(kind));
  }
  std::memcpy(&number, value.bytes.data(), sizeof(number));
  return number;
}

}  // namespace

absl::StatusOr<bool> LeafValue::Bool() const {
  CKPTREE_ASSIGN_OR_RETURN(const char byte,
                           Number<char>(*this, EntryKind::kBool));
  return byte != 0;
}

absl::StatusOr<std::int64_t> LeafValue::Int() const {
  return Number<std::int64_t>(*this, EntryKind::kInt);
}

absl::StatusOr<double> LeafValue::Float() const {
  return Number<double>(*this, EntryKind::kFloat);
}

absl::StatusOr<std::string> LeafValue::String() const {
  switch (info.kind) {
    case EntryKind::kStr:
    case EntryKind::kBytes:
    case EntryKind::kJson:
    case EntryKind::kProto:
    case EntryKind::kFile:
      return std::string(reinterpret_cast<const char*>(bytes.data()),
                         bytes.size());
    default:
      return WrongKind(info, "a text");
  }
}

// ---- LeafView ----

struct LeafView::Impl {
  std::vector<kv::Value> blocks;
  std::vector<std::vector<std::byte>> copies;
  std::vector<Piece> pieces;
  bool zero_copy = true;
};

LeafView::LeafView(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LeafView::LeafView(LeafView&&) noexcept = default;
LeafView& LeafView::operator=(LeafView&&) noexcept = default;
LeafView::~LeafView() = default;

const std::vector<LeafView::Piece>& LeafView::pieces() const {
  return impl_->pieces;
}

bool LeafView::zero_copy() const { return impl_->zero_copy; }

namespace {

// The boxes of the array that the record's chunks are, in their order; none
// where the leaf is not an array.
std::vector<BoxSpec> CellsOf(const schema::LeafRecord& record) {
  std::vector<BoxSpec> cells;
  for (const schema::Box& box : record.boxes) {
    const ChunkGrid grid(box);
    for (std::int64_t i = 0; i < grid.count(); ++i) {
      ChunkGrid::Cell cell = grid.cell(i);
      cells.push_back({std::move(cell.start), std::move(cell.shape)});
    }
  }
  if (!record.is_inline && cells.size() != record.chunks.size()) cells.clear();
  return cells;
}

// Whether the pieces are the whole array, each of its box.
absl::Status CheckPieces(const Path& path, const schema::TreeEntry& entry,
                         const std::vector<LeafView::Piece>& pieces) {
  // Packed elements have chunks that end within a byte.
  if (entry.kind != EntryKind::kArray || entry.packed) return absl::OkStatus();
  const std::int64_t wanted = ElementCount(entry.shape).value_or(-1);
  // A value that stands in its record is of no box.
  const bool whole = pieces.size() == 1 && pieces[0].box.shape.empty();
  std::int64_t found = 0;
  for (const LeafView::Piece& piece : pieces) {
    const Shape& shape = whole ? entry.shape : piece.box.shape;
    const std::int64_t bytes =
        ArrayBytes(entry.dtype, /*packed=*/false, shape).value_or(-1);
    const bool inside =
        whole || CheckBox(piece.box.start, shape, entry.shape).ok();
    if (!inside || bytes < 0 ||
        piece.bytes.size() != static_cast<std::uint64_t>(bytes)) {
      return absl::DataLossError(
          absl::StrFormat("%s: its record contradicts itself", path.Text()));
    }
    found += ElementCount(shape).value_or(0);
  }
  if (found != wanted) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s: the boxes that were saved hold %d of its %d elements", path.Text(),
        found, wanted));
  }
  return absl::OkStatus();
}

template <typename E>
constexpr DType kDTypeOf = DType::kNone;
template <>
constexpr DType kDTypeOf<float> = DType::kFloat32;
template <>
constexpr DType kDTypeOf<double> = DType::kFloat64;
template <>
constexpr DType kDTypeOf<std::int8_t> = DType::kInt8;
template <>
constexpr DType kDTypeOf<std::int16_t> = DType::kInt16;
template <>
constexpr DType kDTypeOf<std::int32_t> = DType::kInt32;
template <>
constexpr DType kDTypeOf<std::int64_t> = DType::kInt64;
template <>
constexpr DType kDTypeOf<std::uint8_t> = DType::kUint8;
template <>
constexpr DType kDTypeOf<std::uint16_t> = DType::kUint16;
template <>
constexpr DType kDTypeOf<std::uint32_t> = DType::kUint32;
template <>
constexpr DType kDTypeOf<std::uint64_t> = DType::kUint64;

absl::StatusOr<LeafInfo> HolderIn(const StepReader& reader,
                                  const LeafInfo& leaf) {
  if (!leaf.tie_to.has_value()) return leaf;
  CKPTREE_ASSIGN_OR_RETURN(std::optional<LeafInfo> holder,
                           reader.Find(*leaf.tie_to));
  if (!holder.has_value()) {
    return absl::DataLossError(absl::StrFormat(
        "%s is tied to %s, which is missing", leaf.name, leaf.tie_to->Text()));
  }
  return *std::move(holder);
}

template <typename E>
absl::StatusOr<std::vector<E>> ReadArray(const StepReader& reader,
                                         const Path& path) {
  CKPTREE_ASSIGN_OR_RETURN(const std::optional<LeafInfo> found,
                           reader.Find(path));
  if (!found.has_value()) return reader.NoSuchPath(path);
  CKPTREE_ASSIGN_OR_RETURN(const LeafInfo leaf, HolderIn(reader, *found));
  constexpr DType kAsked = kDTypeOf<E>;
  if (leaf.kind != EntryKind::kArray || leaf.dtype != kAsked) {
    return WrongKind(leaf, absl::StrFormat("an array of %s", Name(kAsked)));
  }
  const auto count =
      static_cast<std::size_t>(ElementCount(leaf.shape).value_or(0));
  std::vector<E> values(count);
  const ReadRequest request{path, std::nullopt,
                            std::as_writable_bytes(std::span(values))};
  CKPTREE_RETURN_IF_ERROR(reader.ReadMany(std::span(&request, 1), {}));
  return values;
}

absl::StatusOr<LeafView> ViewOf(const StepReader& reader, const Path& at) {
  CKPTREE_ASSIGN_OR_RETURN(StepReader::Located located, reader.Locate(at));
  auto impl = std::make_unique<LeafView::Impl>();
  const auto copy = [&impl](BoxSpec box, std::string_view bytes) {
    const auto* begin = reinterpret_cast<const std::byte*>(bytes.data());
    // Over-allocated by a cache line, so that the copy is aligned as well.
    auto& buffer = impl->copies.emplace_back(bytes.size() + 64);
    const auto address = reinterpret_cast<std::uintptr_t>(buffer.data());
    std::byte* aligned = buffer.data() + (64 - address % 64) % 64;
    std::memcpy(aligned, begin, bytes.size());
    impl->pieces.push_back({std::move(box), {aligned, bytes.size()}});
    impl->zero_copy = false;
  };
  for (const schema::LeafRecord& record : located.records) {
    std::vector<BoxSpec> boxes = CellsOf(record);
    if (record.is_inline) {
      copy(boxes.empty() ? BoxSpec() : std::move(boxes.front()),
           record.inline_value);
      continue;
    }
    for (std::size_t i = 0; i < record.chunks.size(); ++i) {
      const schema::ChunkRef& ref = record.chunks[i];
      BoxSpec box = boxes.empty() ? BoxSpec() : std::move(boxes[i]);
      // A block that is one chunk is compared once, not for each view.
      const kv::Saved saved{ref.block_length, ref.digest};
      absl::StatusOr<kv::Value> block = reader.engine().database().View(
          ref.place, internal::ChunkKey(ref),
          internal::IsWholeBlock(ref) ? &saved : nullptr);
      const bool mapped = block.ok() && block->mapped();
      const bool checked = block.ok() && block->checked();
      absl::StatusOr<internal::BlockPayload> payload =
          block.ok() ? internal::BlockPayload::Of(ref, *std::move(block))
                     : absl::StatusOr<internal::BlockPayload>(block.status());
      absl::StatusOr<std::string_view> bytes =
          !payload.ok() ? absl::StatusOr<std::string_view>(payload.status())
          : checked     ? payload->view()
                        : internal::CheckedSlice(ref, payload->view());
      if (!bytes.ok()) {
        const absl::StatusOr<internal::BlockPayload> found =
            internal::SearchBlock(reader.engine().database(), ref,
                                  bytes.status());
        if (found.ok()) {
          CKPTREE_ASSIGN_OR_RETURN(const std::string_view whole,
                                   internal::CheckedSlice(ref, found->view()));
          copy(std::move(box), whole);
          continue;
        }
        const auto code = absl::IsNotFound(bytes.status())
                              ? absl::StatusCode::kDataLoss
                              : bytes.status().code();
        return reader.Annotate(base::WithText(
            bytes.status(), code,
            absl::StrFormat(
                "%s (%s): %s", at.Text(),
                schema::DescribeKey(ref.place, internal::ChunkKey(ref)),
                bytes.status().message())));
      }
      const auto* begin = reinterpret_cast<const std::byte*>(bytes->data());
      // What is not mapped would keep the database open.
      if (!mapped || payload->coded() ||
          reinterpret_cast<std::uintptr_t>(begin) % 64 != 0) {
        copy(std::move(box), *bytes);
        continue;
      }
      impl->pieces.push_back({std::move(box), {begin, bytes->size()}});
      impl->blocks.push_back((*std::move(payload)).TakeValue());
    }
  }
  CKPTREE_RETURN_IF_ERROR(
      reader.Annotate(CheckPieces(at, *located.entry, impl->pieces)));
  // Of an array that stands in its record.
  if (located.entry->kind == EntryKind::kArray && impl->pieces.size() == 1 &&
      impl->pieces.front().box.shape.empty()) {
    impl->pieces.front().box = {Shape(located.entry->shape.size(), 0),
                                located.entry->shape};
  }
  return LeafView(std::move(impl));
}

}  // namespace

bool IsStepGone(const absl::Status& status) {
  return internal::HasStepGone(status);
}

// ---- Step ----

Step::Step(std::unique_ptr<StepReader> reader) : reader_(std::move(reader)) {}
Step::Step(Step&&) noexcept = default;
Step& Step::operator=(Step&&) noexcept = default;
Step::~Step() = default;

std::int64_t Step::step() const { return reader_->info().step; }
const StepInfo& Step::info() const { return reader_->info(); }

absl::StatusOr<StepMetadata> Step::Metadata() const {
  return reader_->Metadata();
}

absl::StatusOr<std::vector<LeafInfo>> Step::Leaves(
    std::string_view glob) const {
  return GuardedResult("Leaves", [&] { return reader_->Leaves(glob); });
}

absl::StatusOr<std::optional<LeafInfo>> Step::Find(PathRef path) const {
  return GuardedResult(
      "Find", [&]() -> absl::StatusOr<std::optional<LeafInfo>> {
        std::optional<Path> parsed;
        CKPTREE_ASSIGN_OR_RETURN(const Path* const at, path.Get(&parsed));
        return reader_->Find(*at);
      });
}

absl::StatusOr<LeafInfo> Step::Holder(const LeafInfo& leaf) const {
  return GuardedResult("Holder", [&] { return HolderIn(*reader_, leaf); });
}

absl::StatusOr<LeafDetail> Step::Detail(PathRef path) const {
  return GuardedResult("Detail", [&]() -> absl::StatusOr<LeafDetail> {
    std::optional<Path> parsed;
    CKPTREE_ASSIGN_OR_RETURN(const Path* const at, path.Get(&parsed));
    CKPTREE_ASSIGN_OR_RETURN(std::optional<LeafInfo> leaf, reader_->Find(*at));
    if (!leaf.has_value()) return reader_->NoSuchPath(*at);
    std::vector<LeafInfo> leaves;
    leaves.push_back(*std::move(leaf));
    CKPTREE_ASSIGN_OR_RETURN(std::vector<LeafDetail> details,
                             reader_->Details(leaves));
    return std::move(details.front());
  });
}

absl::StatusOr<std::vector<LeafDetail>> Step::Details(
    const std::vector<LeafInfo>& leaves) const {
  return GuardedResult("Details", [&] { return reader_->Details(leaves); });
}

absl::Status Step::Read(PathRef path, std::span<std::byte> destination) const {
  return GuardedResult("Read", [&]() -> absl::Status {
    std::optional<Path> parsed;
    CKPTREE_ASSIGN_OR_RETURN(const Path* const at, path.Get(&parsed));
    return reader_->ReadOne(*at, std::nullopt, destination, {});
  });
}

absl::Status Step::ReadBox(PathRef path, const BoxSpec& box,
                           std::span<std::byte> destination) const {
  return GuardedResult("ReadBox", [&]() -> absl::Status {
    std::optional<Path> parsed;
    CKPTREE_ASSIGN_OR_RETURN(const Path* const at, path.Get(&parsed));
    return reader_->ReadOne(*at, box, destination, {});
  });
}

absl::Status Step::ReadMany(std::span<const ReadRequest> requests,
                            const ReadOptions& options) const {
  return GuardedResult("ReadMany", [&]() -> absl::Status {
    if (requests.empty()) return absl::OkStatus();
    return reader_->ReadMany(requests, options);
  });
}

template <internal::ReadableValue T>
absl::StatusOr<T> Step::Read(PathRef path) const {
  return GuardedResult("Read", [&]() -> absl::StatusOr<T> {
    std::optional<Path> parsed;
    CKPTREE_ASSIGN_OR_RETURN(const Path* const at, path.Get(&parsed));
    if constexpr (std::is_same_v<T, bool>) {
      CKPTREE_ASSIGN_OR_RETURN(const LeafValue value, reader_->Value(*at));
      return value.Bool();
    } else if constexpr (std::is_same_v<T, std::int64_t>) {
      CKPTREE_ASSIGN_OR_RETURN(const LeafValue value, reader_->Value(*at));
      return value.Int();
    } else if constexpr (std::is_same_v<T, double>) {
      CKPTREE_ASSIGN_OR_RETURN(const LeafValue value, reader_->Value(*at));
      return value.Float();
    } else if constexpr (std::is_same_v<T, std::string>) {
      CKPTREE_ASSIGN_OR_RETURN(const LeafValue value, reader_->Value(*at));
      return value.String();
    } else {
      return ReadArray<typename T::value_type>(*reader_, *at);
    }
  });
}

template absl::StatusOr<bool> Step::Read(PathRef) const;
template absl::StatusOr<std::int64_t> Step::Read(PathRef) const;
template absl::StatusOr<double> Step::Read(PathRef) const;
template absl::StatusOr<std::string> Step::Read(PathRef) const;
template absl::StatusOr<std::vector<float>> Step::Read(PathRef) const;
template absl::StatusOr<std::vector<double>> Step::Read(PathRef) const;
template absl::StatusOr<std::vector<std::int8_t>> Step::Read(PathRef) const;
template absl::StatusOr<std::vector<std::int16_t>> Step::Read(PathRef) const;
template absl::StatusOr<std::vector<std::int32_t>> Step::Read(PathRef) const;
template absl::StatusOr<std::vector<std::int64_t>> Step::Read(PathRef) const;
template absl::StatusOr<std::vector<std::uint8_t>> Step::Read(PathRef) const;
template absl::StatusOr<std::vector<std::uint16_t>> Step::Read(PathRef) const;
template absl::StatusOr<std::vector<std::uint32_t>> Step::Read(PathRef) const;
template absl::StatusOr<std::vector<std::uint64_t>> Step::Read(PathRef) const;

absl::StatusOr<LeafValue> Step::Value(PathRef path) const {
  return GuardedResult("Value", [&]() -> absl::StatusOr<LeafValue> {
    std::optional<Path> parsed;
    CKPTREE_ASSIGN_OR_RETURN(const Path* const at, path.Get(&parsed));
    return reader_->Value(*at);
  });
}

absl::StatusOr<LeafView> Step::View(PathRef path) const {
  return GuardedResult("View", [&]() -> absl::StatusOr<LeafView> {
    std::optional<Path> parsed;
    CKPTREE_ASSIGN_OR_RETURN(const Path* const at, path.Get(&parsed));
    return ViewOf(*reader_, *at);
  });
}

absl::Status Step::Expect(const std::vector<LeafInfo>& expected) const {
  return GuardedResult("Expect", [&]() -> absl::Status {
    CKPTREE_ASSIGN_OR_RETURN(const std::vector<LeafInfo> actual,
                             reader_->Leaves(""));
    std::map<std::string_view, const LeafInfo*> stored;
    for (const LeafInfo& leaf : actual) stored[leaf.name] = &leaf;
    const auto describe = [](const LeafInfo& leaf) {
      if (leaf.kind != EntryKind::kArray) return std::string(Name(leaf.kind));
      return absl::StrFormat("%s%s%s", leaf.packed ? "packed " : "",
                             Name(leaf.dtype), ShapeText(leaf.shape));
    };
    std::string differences;
    for (const LeafInfo& leaf : expected) {
      const std::string name = leaf.name.empty() ? leaf.path.Text() : leaf.name;
      const auto it = stored.find(name);
      if (it == stored.end()) {
        absl::StrAppendFormat(&differences, "\n  %s: missing in the step",
                              name);
        continue;
      }
      const bool tie = it->second->tie_to.has_value();
      // What a read of a tie gives is that of its leaf.
      LeafInfo holder;
      if (tie && !leaf.tie_to.has_value()) {
        CKPTREE_ASSIGN_OR_RETURN(holder, Holder(*it->second));
      }
      const LeafInfo& found = tie ? holder : *it->second;
      const bool compared = !tie || !leaf.tie_to.has_value();
      if (compared &&
          (found.kind != leaf.kind || found.dtype != leaf.dtype ||
           found.packed != leaf.packed || found.shape != leaf.shape)) {
        absl::StrAppendFormat(&differences, "\n  %s: saved as %s, expected %s",
                              name, describe(found), describe(leaf));
      }
      stored.erase(it);
    }
    for (const auto& [name, leaf] : stored) {
      // Nodes may be left out: what matters of them follows from the leaves.
      if (!leaf->is_leaf() && !leaf->tie_to.has_value()) continue;
      absl::StrAppendFormat(&differences, "\n  %s: not expected", name);
    }
    if (differences.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrFormat(
        "step %d is not what was expected:%s", step(), differences));
  });
}

}  // namespace ckptree
