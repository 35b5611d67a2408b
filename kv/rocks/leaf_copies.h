// SPDX-License-Identifier: Apache-2.0

// The second copy of the records of `leaves`.
//
// A column family of kv's own always holds the same records as `leaves`, in
// files of its own: adopted, dropped and written again together with them. One
// bit that flips in a leaf record would else cost leaves although no byte of
// theirs was hit.

#ifndef CKPTREE_KV_ROCKS_LEAF_COPIES_H_
#define CKPTREE_KV_ROCKS_LEAF_COPIES_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv/journal/cursor.h"
#include "kv/options.h"
#include "kv/rocks/instance.h"

namespace rocksdb {
class Iterator;
class PinnableSlice;
class Status;
}  // namespace rocksdb

namespace ckptree::kv {

// The first copy's answer; where it has none, the second's. An error only where
// both fail: that of the first.
rocksdb::Status GetLeafRecord(const Instance& instance, std::string_view key,
                              rocksdb::PinnableSlice* value);

// Moves through one copy until it fails, then goes on in the other at the entry
// where it failed. An error only where both fail at the same entry.
class EitherCursor : public Cursor {
 public:
  using MakeFn = std::function<std::unique_ptr<Cursor>(bool second)>;
  // `make` is asked for a new cursor each time: in 7.8 one that met damage may
  // answer a later Seek from the block it had before. `tell` hears of the first
  // failure.
  EitherCursor(MakeFn make, std::function<void(const absl::Status&)> tell);

  void Seek(std::string_view key) override;
  void Next() override;
  bool Valid() const override { return cursor_->Valid(); }
  std::string_view key() const override { return cursor_->key(); }
  std::string_view value() const override { return cursor_->value(); }
  absl::Status status() const override { return status_; }

 private:
  // `from`: the key at or behind which the next entry stands.
  void Settle(std::string_view from);

  const MakeFn make_;
  const std::function<void(const absl::Status&)> tell_;
  bool second_ = false;
  std::unique_ptr<Cursor> cursor_;
  std::string passed_;  // The key that Next() leaves, and a zero byte.
  absl::Status status_;
};

// Copies the staged file `path` beside it and syncs it; returns its name. Its
// folder is not synced.
absl::StatusOr<std::string> CopyStaged(const Options& options,
                                       const std::string& path);

// Writes the copies of the records in [first_key, last_key] again: the records
// that `leaves` still has. A copy that is damaged stays as it is.
absl::Status RewriteLeafCopies(const Instance& instance,
                               std::string_view first_key,
                               std::string_view last_key);

// Writes what `leaves` has in [first_key, last_key] to a new, synced file at
// `path` that can be adopted.
absl::Status WriteLeafCopy(const Instance& instance, const Options& options,
                           const std::string& path, std::string_view first_key,
                           std::string_view last_key);

// kDataLoss where a record that `first` has in [first_key, last_key] is not in
// `second`, byte for byte.
absl::Status CompareLeafCopies(rocksdb::Iterator& first,
                               rocksdb::Iterator& second,
                               std::string_view first_key,
                               std::string_view last_key);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_LEAF_COPIES_H_
