// SPDX-License-Identifier: Apache-2.0

// Deletes what nothing needs any more from an object store.

#ifndef CKPTREE_CORE_REMOTE_CLEANER_H_
#define CKPTREE_CORE_REMOTE_CLEANER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/remote/row_index.h"
#include "kv/object_store.h"

namespace ckptree::internal {

// The rules of tests/remote/deletion_model.py.
//
// Confined to one thread at a time. `store` outlives it.
class RemoteCleaner {
 public:
  // Of the store `uuid`, for the writer of the open `era`, which is in the
  // chain. What is dead is deleted `grace` later, by the clock of the store.
  RemoteCleaner(kv::ObjectStore* store, std::string uuid, std::uint64_t era,
                absl::Duration grace)
      : store_(store), uuid_(std::move(uuid)), era_(era), grace_(grace) {}

  // Lists the objects there, once, and marks in `index` what earlier writers
  // left behind; nothing where that failed a short time ago. `index` has all
  // commits up to the open, or more. An error once looked() is of unfinished
  // uploads alone.
  absl::Status Look(RowIndex* index, const kv::Call& call);
  // The keys of segment rows whose objects it found missing or of another size
  // since this was asked last.
  std::vector<std::string> TakeLost() { return std::exchange(lost_, {}); }
  // Whether Look() is done.
  bool looked() const { return looked_; }

  // Deletes what is due, once Look() is done; nothing where it did a short time
  // ago. `still_ours`, asked before the first one: not OK where another writer
  // has taken over, whose indexes may name what is dead in `index`.
  absl::Status Clean(RowIndex* index, const kv::Call& call,
                     absl::FunctionRef<absl::Status()> still_ours);

  // When one of them has something to do, of kv::MonotonicNow(), as far as it
  // knows now.
  absl::Time next() const { return next_; }

 private:
  absl::Status Sweep(RowIndex* index, const kv::Call& call);
  absl::Status AbortLeft(const kv::Call& call);
  absl::Status DeleteAttempts(const kv::Call& call);
  absl::Status DeleteDue(RowIndex* index, const kv::Call& call,
                         absl::FunctionRef<absl::Status()> still_ours);
  void PutOff();

  kv::ObjectStore* const store_;
  const std::string uuid_;
  const std::uint64_t era_;
  const absl::Duration grace_;
  bool looked_ = false;
  std::vector<std::string> lost_;
  absl::Time next_ = absl::InfinitePast();
};

// By the clock of the store, by an object that is made for that.
absl::StatusOr<absl::Time> RemoteClock(kv::ObjectStore& store,
                                       const std::string& uuid,
                                       const kv::Call& call);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_REMOTE_CLEANER_H_
