// SPDX-License-Identifier: Apache-2.0

// A store that is read by its address in an object store, through a folder of
// this machine.

#ifndef CKPTREE_CORE_REMOTE_ADDRESS_CACHE_H_
#define CKPTREE_CORE_REMOTE_ADDRESS_CACHE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/remote/attended_store.h"
#include "core/remote/far_place.h"
#include "core/remote/remote_segments.h"
#include "core/remote/row_index.h"
#include "kv/monotonic.h"
#include "kv/object_store.h"
#include "kv/options.h"

namespace ckptree::internal {

// $XDG_CACHE_HOME/ckptree, or ~/.cache/ckptree: where what is fetched, or on
// its way, stands on this machine. Nothing: the environment names neither.
std::optional<std::string> CacheFolder();

// The newest commit of which this process knows that it is in the store of its
// address. Thread-safe.
class ProvenPoint {
 public:
  // After `lasts` it is looked for again: that nothing follows it is also seen
  // where the objects were removed, or are those of another store by now.
  explicit ProvenPoint(absl::Duration lasts = absl::Minutes(1))
      : lasts_(lasts) {}

  bool Is(const ChainPoint& point) const {
    const absl::MutexLock lock(&mutex_);
    return point == point_ && kv::MonotonicNow() < since_ + lasts_;
  }
  // It was read, or found there, just now.
  void Set(const ChainPoint& point) {
    const absl::MutexLock lock(&mutex_);
    point_ = point;
    since_ = kv::MonotonicNow();
  }

 private:
  const absl::Duration lasts_;
  mutable absl::Mutex mutex_;
  ChainPoint point_ ABSL_GUARDED_BY(mutex_);
  absl::Time since_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

// While it lives nobody brings the directory on: what is read of it now is what
// was compared with the objects.
using CacheTurn = std::shared_ptr<const void>;

// A directory with the store as it is there now.
struct CachedStore {
  std::string directory;
  // While it lives nobody removes the directory.
  std::shared_ptr<const void> hold;
  // Of which `trouble` hears; `segments` hears of its own reads.
  std::shared_ptr<kv::ObjectStore> store;
  std::shared_ptr<RemoteTrouble> trouble;
  std::string uuid;
  std::shared_ptr<RemoteSegments> segments;
  std::shared_ptr<ProvenPoint> proven;
};

// In $XDG_CACHE_HOME/ckptree/<uuid>, or ~/.cache/ckptree/<uuid>, a folder for
// each address: its rows, made anew where the store has new commits, and the
// leaf records that were read. What nobody uses any more is removed. Safe to
// delete while nobody reads. Shared by processes. `turn` is for opening it.
// kNotFound: there is no store, or nothing was shipped yet. kUnavailable,
// within about a minute: nobody answers there. `reader` is of what is read of
// its segments.
//
// Two stores may have one uuid, and one commit in common, and the objects of an
// address may be replaced. So a directory is used only where its newest commit
// is in the object store, by its hash, which is that of all before it.
absl::StatusOr<CachedStore> CacheOf(const std::string& address,
                                    const kv::Options& options,
                                    std::shared_ptr<RemoteTrouble> trouble,
                                    const FarReader& reader, CacheTurn* turn);

// Brings the directory up to what is there now: one request where that is
// nothing new, and once a minute two. Processes take turns; refresh what is
// read before the turn is given back. kDataLoss: what is there does not go on
// from what the directory has. Objects that were removed, or put back to an
// older state, by which nothing is added, are noticed within that minute.
absl::StatusOr<CacheTurn> AdvanceCache(const CachedStore& cached,
                                       const kv::Options& options);

// Reads the commits there once more, those that an open reads, or all, and
// looks whether their segments are there with their sizes. What is damaged is
// said in `damage`; the status is of all else.
absl::Status CheckObjects(const CachedStore& cached, bool all,
                          std::vector<std::string>* damage);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_REMOTE_ADDRESS_CACHE_H_
