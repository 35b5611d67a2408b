// Hot path: per block read.

#include "kv/value.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv/database.h"
#include "kv/database_impl.h"
#include "kv/instance.h"
#include "kv/mapped_files.h"
#include "kv/process_mark.h"
#include "kv/status.h"
#include "kv/status_macros.h"
#include "rocksdb/db.h"
#include "rocksdb/options.h"
#include "rocksdb/slice.h"
#include "schema/spaces.h"

namespace ckptree::kv {

// Members are destroyed from the last to the first: what the bytes stand on
// before the instance.
struct Value::Impl {
  ProcessMark mark;
  std::shared_ptr<const Instance> instance;
  rocksdb::PinnableSlice pinned;
  std::optional<MappedRecord> mapped;
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

std::string_view Value::view() const {
  if (impl_ == nullptr) return {};
  return impl_->mapped.has_value() ? impl_->mapped->value()
                                   : impl_->pinned.ToStringView();
}

absl::StatusOr<Value> Database::Read(schema::Space space,
                                     std::string_view key) const {
  CKPTREE_ASSIGN_OR_RETURN(const std::shared_ptr<Instance> instance,
                           impl_->Reading());
  auto value = std::make_unique<Value::Impl>();
  value->instance = instance;
  const rocksdb::Status status = instance->db()->Get(
      rocksdb::ReadOptions(), instance->family(space), key, &value->pinned);
  if (!status.ok()) return ToStatus(status, "reading");
  return Value(std::move(value));
}

bool Database::ReadUnchecked(schema::Space space, std::string_view key,
                             std::uint64_t offset,
                             std::span<std::byte> destination) const {
  if (space != schema::Space::kChunks) return false;
  const absl::StatusOr<std::shared_ptr<Instance>> instance = impl_->Reading();
  return instance.ok() &&
         impl_->chunk_files.Read(**instance, key, offset, destination);
}

void Database::Prefetch(schema::Space space, std::string_view key,
                        std::uint64_t offset, std::size_t bytes) const {
  if (space != schema::Space::kChunks) return;
  const absl::StatusOr<std::shared_ptr<Instance>> instance = impl_->Reading();
  if (instance.ok()) {
    impl_->chunk_files.Prefetch(**instance, key, offset, bytes);
  }
}

absl::StatusOr<Value> Database::View(schema::Space space,
                                     std::string_view key) const {
  if (space != schema::Space::kLeaves && space != schema::Space::kChunks) {
    return Read(space, key);
  }
  CKPTREE_ASSIGN_OR_RETURN(const std::shared_ptr<Instance> instance,
                           impl_->Reading());
  absl::StatusOr<std::shared_ptr<const MappedFile>> file =
      impl_->mapped.Find(instance, space, key);
  if (absl::IsDataLoss(file.status())) return std::move(file).status();
  // A follower still holds open what the writer has removed meanwhile.
  if (!file.ok() || *file == nullptr) return Read(space, key);
  CKPTREE_ASSIGN_OR_RETURN(std::optional<MappedRecord> record,
                           MappedRecord::Find(*std::move(file), key));
  if (!record.has_value()) return Read(space, key);
  auto value = std::make_unique<Value::Impl>();
  value->instance = instance;
  value->mapped = std::move(record);
  return Value(std::move(value));
}

}  // namespace ckptree::kv
