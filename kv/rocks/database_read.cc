// SPDX-License-Identifier: Apache-2.0

// Reading by key and by range, and what a read gives: Value. Hot path: per
// block read.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "kv/database.h"
#include "kv/files/status.h"
#include "kv/journal/cursor.h"
#include "kv/journal/overlay.h"
#include "kv/process_mark.h"
#include "kv/rocks/database_impl.h"
#include "kv/rocks/index_cursor.h"
#include "kv/rocks/instance.h"
#include "kv/rocks/iterator_impl.h"
#include "kv/rocks/leaf_copies.h"
#include "kv/rocks/mapped_files.h"
#include "kv/rocks/records_ahead.h"
#include "kv/rocks/segment_layout.h"
#include "kv/value.h"
#include "rocksdb/db.h"
#include "rocksdb/options.h"
#include "rocksdb/slice.h"
#include "schema/spaces.h"

namespace ckptree::kv {
namespace {

absl::Status Missing() { return absl::NotFoundError("it is missing"); }

}  // namespace

// Members are destroyed from the last to the first: what the bytes stand on
// before the instance.
struct Value::Impl {
  ProcessMark mark;
  std::shared_ptr<const Instance> instance;
  std::shared_ptr<const Overlay> overlay;
  std::string_view held;  // Of a row of the overlay.
  std::optional<std::string> found;
  rocksdb::PinnableSlice pinned;
  std::optional<MappedRecord> mapped;
  bool checked = false;
};

Value::Value() = default;
Value::Value(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Value::Value(Value&&) noexcept = default;

Value& Value::operator=(Value&& other) noexcept {
  std::swap(impl_, other.impl_);
  return *this;
}

Value::~Value() {
  // In a forked child the threads that unpinning may wait for are missing.
  if (impl_ != nullptr && !impl_->mark.Holds()) {
    static_cast<void>(impl_.release());
  }
}

bool Value::mapped() const {
  return impl_ != nullptr && impl_->mapped.has_value();
}

bool Value::checked() const { return impl_ != nullptr && impl_->checked; }

std::string_view Value::view() const {
  if (impl_ == nullptr) return {};
  if (impl_->mapped.has_value()) return impl_->mapped->value();
  if (impl_->overlay != nullptr) return impl_->held;
  if (impl_->found.has_value()) return *impl_->found;
  return impl_->pinned.ToStringView();
}

absl::StatusOr<std::optional<std::string>> Database::Get(
    schema::Space space, std::string_view key) const {
  const absl::StatusOr<Value> value = Read(space, key);
  if (absl::IsNotFound(value.status())) return std::nullopt;
  if (!value.ok()) return value.status();
  return std::string(value->view());
}

absl::StatusOr<Value> Database::Read(schema::Space space,
                                     std::string_view key) const {
  const bool rows =
      space == schema::Space::kRecords || space == schema::Space::kSmall;
  absl::Status behind;
  if (!rows) behind = impl_->CatchUp(VersionOfKey(key));
  absl::StatusOr<Value> value = ReadOnce(space, key);
  // It may be in what could not be opened.
  if (!value.ok() && !behind.ok()) return behind;
  // What is damaged is so at two looks in a row.
  if (rows && absl::IsDataLoss(value.status()) && !IsGone(value.status())) {
    value = ReadOnce(space, key);
  }
  if (IsGone(value.status())) {
    // Of the instance before; another thread may have looked since then.
    const absl::StatusOr<std::shared_ptr<Instance>> now = impl_->Reading();
    value = ReadOnce(space, key);
    if (IsGone(value.status()) && now.ok()) {
      CKPTREE_ASSIGN_OR_RETURN(const bool other,
                               impl_->LooksForTables(now->get()));
      if (other) value = ReadOnce(space, key);
    }
  }
  if (rows && impl_->ReadRowsFromJournal(value.status())) {
    value = ReadOnce(space, key);
  }
  if (space == schema::Space::kChunks && !value.ok()) {
    CKPTREE_ASSIGN_OR_RETURN(const bool elsewhere, impl_->LooksAgain());
    if (elsewhere) value = ReadOnce(space, key);
  }
  if (space == schema::Space::kSmall && absl::IsDataLoss(value.status())) {
    const auto any = [](std::string_view) { return true; };
    if (std::optional<Value> kept = impl_->ValueInJournal(key, any)) {
      return *std::move(kept);
    }
  }
  return value;
}

absl::StatusOr<Value> Database::ReadOnce(schema::Space space,
                                         std::string_view key) const {
  CKPTREE_ASSIGN_OR_RETURN(Impl::RowView view, impl_->ReadingRows());
  auto value = std::make_unique<Value::Impl>();
  absl::Status far_status;
  if (FarTables* const far = impl_->FarOf(space, key)) {
    absl::StatusOr<std::string> found = far->Get(space, key);
    if (found.ok()) {
      value->found = *std::move(found);
      return Value(std::move(value));
    }
    if (impl_->AllFar()) return found.status();
    far_status = found.status();
  }
  if (view.overlay != nullptr) {
    if (const Overlay::Found found = view.overlay->Get(space, key);
        found.known) {
      if (!found.value.has_value()) return Missing();
      value->held = *found.value;
      value->overlay = std::move(view.overlay);
      return Value(std::move(value));
    }
  }
  value->instance = view.instance;
  const Instance& instance = *view.instance;
  const rocksdb::Status status =
      space == schema::Space::kLeaves
          ? GetLeafRecord(instance, key, &value->pinned)
          : instance.db()->Get(rocksdb::ReadOptions(), instance.family(space),
                               key, &value->pinned);
  if (!status.ok() && !far_status.ok()) return far_status;
  if (status.IsNotFound()) return Missing();
  if (!status.ok()) return ToReadStatus(status, "reading");
  return Value(std::move(value));
}

bool Database::ReadUnchecked(schema::Space space, std::string_view key,
                             std::uint64_t value_bytes, std::uint64_t offset,
                             std::span<std::byte> destination,
                             PieceFn on_piece) const {
  if (space != schema::Space::kChunks &&
      (space != schema::Space::kSmall || !IsArrayBlock(key))) {
    return false;
  }
  const absl::StatusOr<Impl::RowView> view = impl_->ReadingRows();
  if (!view.ok()) return false;
  if (FarTables* const far = impl_->FarOf(space, key)) {
    if (far->Read(key, value_bytes, offset, destination, on_piece)) return true;
    if (impl_->AllFar()) return false;
  }
  if (view->overlay != nullptr && space == schema::Space::kSmall) {
    if (const Overlay::Found found = view->overlay->Get(space, key);
        found.known) {
      if (!found.value.has_value() || found.value->size() != value_bytes ||
          offset > value_bytes || destination.size() > value_bytes - offset) {
        return false;
      }
      std::memcpy(destination.data(), found.value->data() + offset,
                  destination.size());
      on_piece(destination);
      return true;
    }
  }
  return impl_->table_files->Read(*view->instance, space, key, value_bytes,
                                  offset, destination, on_piece);
}

std::size_t Database::ReadRun(std::span<const ArrayBlock> blocks,
                              std::span<std::byte> scratch,
                              BlockFn on_block) const {
  const absl::StatusOr<std::shared_ptr<Instance>> instance = impl_->Reading();
  if (!instance.ok()) return 0;
  if (blocks.empty()) return 0;
  if (FarTables* const far =
          impl_->FarOf(schema::Space::kChunks, blocks.front().key)) {
    const std::size_t read = far->ReadRun(blocks, scratch, on_block);
    if (read > 0 || impl_->AllFar()) return read;
  }
  return impl_->table_files->ReadRun(**instance, blocks, scratch, on_block);
}

std::optional<std::string> Database::ReadWritten(schema::Space space,
                                                 std::string_view key) const {
  std::optional<std::string> found;
  const std::string one(key);
  ReadWritten(
      space, std::span(&one, 1),
      [&found](std::size_t, std::string_view value) { found.emplace(value); });
  return found;
}

void Database::ReadWritten(schema::Space space,
                           std::span<const std::string> keys,
                           WrittenFn on_value) const {
  if (space != schema::Space::kSmall) return;
  const absl::StatusOr<Impl::RowView> view = impl_->ReadingRows();
  if (!view.ok()) return;
  NearTable near;
  RecordsAhead ahead(keys);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (view->overlay != nullptr) {
      if (const Overlay::Found found = view->overlay->Get(space, keys[i]);
          found.known) {
        if (found.value.has_value()) on_value(i, *found.value);
        continue;
      }
    }
    const auto value = ahead.Around(i, near, [&] {
      return impl_->table_files->ReadChecked(*view->instance, keys[i], &near);
    });
    if (value.has_value()) on_value(i, *value);
  }
}

std::optional<std::uint64_t> Database::ValueBytes(schema::Space space,
                                                  std::string_view key) const {
  if (space != schema::Space::kChunks) return std::nullopt;
  const absl::StatusOr<std::shared_ptr<Instance>> instance = impl_->Reading();
  if (!instance.ok()) return std::nullopt;
  if (FarTables* const far = impl_->FarOf(space, key)) {
    return far->ValueBytes(key);
  }
  return impl_->table_files->ValueBytes(**instance, key);
}

void Database::Prefetch(schema::Space space, std::string_view key,
                        std::uint64_t value_bytes, std::uint64_t offset,
                        std::size_t bytes) const {
  if (space != schema::Space::kChunks && space != schema::Space::kSmall) return;
  if (impl_->FarOf(space, key) != nullptr) return;
  const absl::StatusOr<std::shared_ptr<Instance>> instance = impl_->Reading();
  if (instance.ok()) {
    impl_->table_files->Prefetch(**instance, space, key, value_bytes, offset,
                                 bytes);
  }
}

absl::StatusOr<Value> Database::View(schema::Space space, std::string_view key,
                                     const Saved* saved) const {
  if ((space != schema::Space::kLeaves && space != schema::Space::kChunks) ||
      impl_->FarOf(space, key) != nullptr) {
    return Read(space, key);
  }
  if (const absl::Status behind = impl_->CatchUp(VersionOfKey(key));
      absl::IsResourceExhausted(behind)) {
    return behind;
  }
  CKPTREE_ASSIGN_OR_RETURN(const std::shared_ptr<Instance> instance,
                           impl_->Reading());
  absl::StatusOr<std::shared_ptr<const MappedFile>> file =
      impl_->mapped->Find(instance, space, key);
  // Of leaf records there is a second copy.
  const bool only_copy = space != schema::Space::kLeaves;
  if (only_copy && absl::IsDataLoss(file.status())) {
    return std::move(file).status();
  }
  // A follower still holds open what the writer has removed since.
  if (!file.ok() || *file == nullptr) return Read(space, key);
  absl::StatusOr<std::optional<MappedRecord>> record =
      MappedRecord::Find(*std::move(file), key, saved);
  if (!record.ok() && only_copy) return std::move(record).status();
  if (!record.ok() || !record->has_value()) return Read(space, key);
  auto value = std::make_unique<Value::Impl>();
  value->mapped = *std::move(record);
  value->checked =
      saved != nullptr && value->mapped->value().size() == saved->bytes;
  return Value(std::move(value));
}

std::optional<Value> Database::Impl::ValueInJournal(
    std::string_view key,
    absl::FunctionRef<bool(std::string_view value)> accept) {
  std::optional<std::string> block = BlockInJournal(key);
  if (!block.has_value() || !accept(*block)) return std::nullopt;
  NoteIndexDamage(absl::StrFormat("a block of version %d cannot be read",
                                  VersionOfKey(key)));
  auto value = std::make_unique<Value::Impl>();
  value->found = *std::move(block);
  return Value(std::move(value));
}

absl::StatusOr<Value> Database::Impl::Search(
    schema::Space space, std::string_view key,
    absl::FunctionRef<bool(std::string_view value)> accept, bool spares,
    bool* unanswered) {
  const auto note = [unanswered](const absl::Status& status) {
    *unanswered |=
        !status.ok() && !absl::IsNotFound(status) && !absl::IsDataLoss(status);
  };
  CKPTREE_ASSIGN_OR_RETURN(const std::shared_ptr<Instance> reading, Reading());
  auto value = std::make_unique<Value::Impl>();
  if (FarTables* const far = FarOf(space, key)) {
    absl::StatusOr<std::string> fetched = far->GetFetched(space, key);
    if (fetched.ok() && !accept(*fetched)) {
      fetched = absl::NotFoundError("its segment has another value");
    }
    if (fetched.ok()) {
      value->found = *std::move(fetched);
      return Value(std::move(value));
    }
    note(fetched.status());
    if (AllFar()) return fetched.status();
  }
  // The journal may still have what a small save wrote.
  if (space == schema::Space::kSmall) {
    std::optional<Value> kept = ValueInJournal(key, accept);
    if (kept.has_value()) return *std::move(kept);
  }
  absl::StatusOr<std::string> found =
      table_search.Find(*reading, space, key, accept);
  if (!found.ok() && spares && spare_tables != nullptr &&
      space == schema::Space::kChunks) {
    absl::StatusOr<std::string> spare = spare_tables->Get(key);
    note(spare.status());
    if (spare.ok() && accept(*spare)) found = std::move(spare);
  }
  CKPTREE_ASSIGN_OR_RETURN(value->found, std::move(found));
  return Value(std::move(value));
}

absl::StatusOr<Value> Database::Search(
    schema::Space space, std::string_view key,
    absl::FunctionRef<bool(std::string_view value)> accept, bool spares) const {
  bool unanswered = false;
  absl::StatusOr<Value> found =
      impl_->Search(space, key, accept, spares, &unanswered);
  // An object store that does not answer, or was not asked, may have it.
  const bool asked = !unanswered && (spares || impl_->spare_tables == nullptr);
  if (asked &&
      (absl::IsNotFound(found.status()) || absl::IsDataLoss(found.status()))) {
    impl_->lost_blocks->Add(space, key);
  }
  return found;
}

bool Database::HasLost() const { return !impl_->lost_blocks->empty(); }

bool Database::IsLost(schema::Space space, std::string_view key) const {
  return impl_->lost_blocks->Has(space, key);
}

absl::StatusOr<Iterator> Database::Scan(schema::Space space,
                                        std::string_view begin,
                                        std::string_view end,
                                        std::size_t readahead_bytes) const {
  const bool rows =
      space == schema::Space::kRecords || space == schema::Space::kSmall;
  if (rows && (end.empty() || end > kEndOfRows)) end = kEndOfRows;
  // Else RocksDB does not take the bounds.
  if (!end.empty() && begin > end) begin = end;
  if (!rows) CKPTREE_RETURN_IF_ERROR(impl_->CatchUp(VersionOfKey(begin)));
  CKPTREE_ASSIGN_OR_RETURN(const Impl::RowView view, impl_->ReadingRows());
  auto scan = std::make_unique<Iterator::Impl>();
  const auto scan_far = [&] {
    scan->cursor = impl_->far_tables->Scan(space, begin, end);
    scan->cursor->Seek(begin);
    return Iterator(std::move(scan));
  };
  if (!rows && impl_->AllFar()) return scan_far();
  scan->cursor = CursorOver(view.instance, view.overlay, space, begin, end,
                            readahead_bytes);
  if (rows || impl_->mode == Mode::kRead) {
    scan->cursor = std::make_unique<MendingCursor>(
        std::move(scan->cursor),
        [impl = impl_.get(), instance = view.instance.get(), space, rows,
         from = std::string(begin), to = std::string(end),
         readahead_bytes](const absl::Status& met, std::string_view at,
                          bool looks_again) -> std::unique_ptr<Cursor> {
          if (looks_again) {
            const absl::StatusOr<Impl::RowView> same = impl->ReadingRows();
            if (!same.ok() || !rows || IsGone(met)) return nullptr;
            return CursorOver(same->instance, same->overlay, space, from, to,
                              readahead_bytes);
          }
          const bool tables =
              IsGone(met) && impl->LooksForTables(instance).value_or(false);
          if (!rows && !tables) return nullptr;
          const bool other = tables || impl->ReadRowsFromJournal(met);
          const absl::StatusOr<Impl::RowView> now = impl->ReadingRows();
          if (!now.ok()) return nullptr;
          if (!tables && space == schema::Space::kSmall) {
            // Blocks of arrays are in the index alone: what cannot be read is
            // passed, and missed by whoever reads the leaf.
            return CursorAround(*now->instance, now->overlay, space, at, to);
          }
          if (!other) return nullptr;
          return CursorOver(now->instance, now->overlay, space, from, to,
                            readahead_bytes);
        });
  }
  scan->cursor->Seek(begin);
  // A segment is here or there.
  if (space == schema::Space::kChunks && !scan->cursor->Valid() &&
      scan->cursor->status().ok() && impl_->far_tables != nullptr) {
    return scan_far();
  }
  return Iterator(std::move(scan));
}

}  // namespace ckptree::kv
