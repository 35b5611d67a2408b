// SPDX-License-Identifier: Apache-2.0

#include "kv/rocks/index_cursor.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv/files/status.h"
#include "kv/rocks/leaf_copies.h"
#include "kv/rocks/scan_around.h"
#include "rocksdb/db.h"
#include "rocksdb/iterator.h"
#include "rocksdb/options.h"
#include "rocksdb/slice.h"

namespace ckptree::kv {
namespace {

// What one column family of an instance has.
class IndexCursor : public Cursor {
 public:
  IndexCursor(std::shared_ptr<const Instance> instance,
              rocksdb::ColumnFamilyHandle* family, std::string_view begin,
              std::string_view end, std::size_t readahead_bytes,
              bool fill_cache)
      : instance_(std::move(instance)),
        begin_(begin),
        end_(end),
        lower_(begin_),
        upper_(end_) {
    rocksdb::ReadOptions options;
    options.iterate_lower_bound = &lower_;
    if (!end_.empty()) options.iterate_upper_bound = &upper_;
    options.readahead_size = readahead_bytes;
    options.fill_cache = fill_cache;
    iterator_.reset(instance_->db()->NewIterator(options, family));
  }

  void Seek(std::string_view key) override { iterator_->Seek(key); }
  void Next() override {
    passed_.assign(iterator_->key().data(), iterator_->key().size());
    iterator_->Next();
    if (iterator_->Valid() || !iterator_->status().ok()) return;
    // In 7.8.3 an iterator that comes to a table which cannot be opened ends as
    // if there were no more entries; one that seeks there says so.
    passed_.push_back('\0');
    iterator_->Seek(passed_);
  }
  bool Valid() const override { return iterator_->Valid(); }
  std::string_view key() const override {
    return iterator_->key().ToStringView();
  }
  std::string_view value() const override {
    return iterator_->value().ToStringView();
  }
  absl::Status status() const override {
    return ToReadStatus(iterator_->status(), "scanning");
  }

 private:
  // Members are destroyed from the last to the first.
  const std::shared_ptr<const Instance> instance_;
  // RocksDB keeps pointers to the slices.
  const std::string begin_;
  const std::string end_;
  const rocksdb::Slice lower_;
  const rocksdb::Slice upper_;
  std::unique_ptr<rocksdb::Iterator> iterator_;
  std::string passed_;
};

std::unique_ptr<Cursor> MakeIndexCursor(
    const std::shared_ptr<const Instance>& instance, schema::Space space,
    std::string_view begin, std::string_view end, std::size_t readahead_bytes) {
  // Scans of blocks would push out of the cache the rows that are looked up
  // again and again.
  const bool fill_cache = space == schema::Space::kRecords;
  if (space != schema::Space::kLeaves) {
    return std::make_unique<IndexCursor>(instance, instance->family(space),
                                         begin, end, readahead_bytes,
                                         fill_cache);
  }
  return std::make_unique<EitherCursor>(
      [=, from = std::string(begin),
       to = std::string(end)](bool second) -> std::unique_ptr<Cursor> {
        rocksdb::ColumnFamilyHandle* const family =
            second ? instance->leaf_copies()
                   : instance->family(schema::Space::kLeaves);
        if (family == nullptr) return nullptr;
        return std::make_unique<IndexCursor>(instance, family, from, to,
                                             readahead_bytes, fill_cache);
      },
      [instance](const absl::Status& why) { instance->TellOfSecondCopy(why); });
}

// Entries that were read before.
class HeldCursor : public Cursor {
 public:
  using Entries = std::vector<std::pair<std::string, std::string>>;

  explicit HeldCursor(Entries entries) : entries_(std::move(entries)) {}

  void Seek(std::string_view key) override {
    at_ = std::lower_bound(
        entries_.begin(), entries_.end(), key,
        [](const auto& entry, std::string_view k) { return entry.first < k; });
  }
  void Next() override { ++at_; }
  bool Valid() const override { return at_ != entries_.end(); }
  std::string_view key() const override { return at_->first; }
  std::string_view value() const override { return at_->second; }
  absl::Status status() const override { return absl::OkStatus(); }

 private:
  const Entries entries_;
  Entries::const_iterator at_ = entries_.end();
};

}  // namespace

std::unique_ptr<Cursor> CursorOver(
    const std::shared_ptr<const Instance>& instance,
    const std::shared_ptr<const Overlay>& overlay, schema::Space space,
    std::string_view begin, std::string_view end, std::size_t readahead_bytes) {
  const bool overlaid = overlay != nullptr && !overlay->empty(space);
  std::unique_ptr<Cursor> cursor;
  if (!overlaid || !overlay->complete(space)) {
    cursor = MakeIndexCursor(instance, space, begin, end, readahead_bytes);
  }
  if (overlaid) {
    cursor = std::make_unique<OverlayCursor>(overlay, space, begin, end,
                                             std::move(cursor));
  }
  return cursor;
}

std::unique_ptr<Cursor> CursorAround(
    const Instance& instance, const std::shared_ptr<const Overlay>& overlay,
    schema::Space space, std::string_view begin, std::string_view end) {
  HeldCursor::Entries entries;
  const rocksdb::Slice lower(begin);
  const rocksdb::Slice upper(end);
  rocksdb::ReadOptions options;
  options.fill_cache = false;
  options.iterate_lower_bound = &lower;
  if (!end.empty()) options.iterate_upper_bound = &upper;
  const absl::StatusOr<ScanGaps> gaps = ScanAround(
      [&] {
        return std::unique_ptr<rocksdb::Iterator>(
            instance.db()->NewIterator(options, instance.family(space)));
      },
      [&](std::string_view key, std::string_view value) {
        entries.emplace_back(key, value);
        return absl::OkStatus();
      });
  if (!gaps.ok()) return nullptr;
  std::unique_ptr<Cursor> cursor =
      std::make_unique<HeldCursor>(std::move(entries));
  if (overlay != nullptr && !overlay->empty(space)) {
    cursor = std::make_unique<OverlayCursor>(overlay, space, begin, end,
                                             std::move(cursor));
  }
  return cursor;
}

}  // namespace ckptree::kv
