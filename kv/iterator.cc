// Hot path: per record scanned.

#include "kv/iterator.h"

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv/database.h"
#include "kv/database_impl.h"
#include "kv/instance.h"
#include "kv/process_mark.h"
#include "kv/status.h"
#include "kv/status_macros.h"
#include "rocksdb/db.h"
#include "rocksdb/iterator.h"
#include "rocksdb/options.h"
#include "rocksdb/slice.h"
#include "schema/spaces.h"

namespace ckptree::kv {

// Members are destroyed from the last to the first.
struct Iterator::Impl {
  ProcessMark mark;
  std::shared_ptr<const Instance> instance;
  // RocksDB keeps pointers to the slices.
  std::string begin;
  std::string end;
  rocksdb::Slice lower;
  rocksdb::Slice upper;
  std::unique_ptr<rocksdb::Iterator> iterator;
};

Iterator::Iterator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Iterator::Iterator(Iterator&&) noexcept = default;

Iterator& Iterator::operator=(Iterator&& other) noexcept {
  std::swap(impl_, other.impl_);
  return *this;
}

Iterator::~Iterator() {
  // In a forked child the threads that closing may wait for are missing.
  if (impl_ != nullptr && !impl_->mark.Holds()) {
    static_cast<void>(impl_.release());
  }
}

bool Iterator::Valid() const { return impl_->iterator->Valid(); }

void Iterator::Next() { impl_->iterator->Next(); }

void Iterator::Seek(std::string_view key) { impl_->iterator->Seek(key); }

std::string_view Iterator::key() const {
  return impl_->iterator->key().ToStringView();
}

std::string_view Iterator::value() const {
  return impl_->iterator->value().ToStringView();
}

absl::Status Iterator::status() const {
  return ToStatus(impl_->iterator->status(), "scanning");
}

absl::StatusOr<Iterator> Database::Scan(schema::Space space,
                                        std::string_view begin,
                                        std::string_view end,
                                        std::size_t readahead_bytes) const {
  CKPTREE_ASSIGN_OR_RETURN(const std::shared_ptr<Instance> instance,
                           impl_->Reading());
  auto scan = std::make_unique<Iterator::Impl>();
  scan->instance = instance;
  scan->begin = begin;
  scan->end = end;
  scan->lower = scan->begin;
  scan->upper = scan->end;
  rocksdb::ReadOptions options;
  options.iterate_lower_bound = &scan->lower;
  if (!end.empty()) options.iterate_upper_bound = &scan->upper;
  options.readahead_size = readahead_bytes;
  // Scans of blocks would push out of the cache the rows that are looked up
  // again and again.
  options.fill_cache = space == schema::Space::kRecords;
  scan->iterator.reset(
      instance->db()->NewIterator(options, instance->family(space)));
  scan->iterator->Seek(scan->lower);
  return Iterator(std::move(scan));
}

}  // namespace ckptree::kv
