// SPDX-License-Identifier: Apache-2.0

// A store that is read by its address in an object store, through a folder of
// this machine.

#ifndef CKPTREE_CORE_REMOTE_ADDRESS_CACHE_H_
#define CKPTREE_CORE_REMOTE_ADDRESS_CACHE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kv/far_segments.h"
#include "kv/object_store.h"
#include "kv/options.h"

namespace ckptree::internal {

// Whether a store is meant that is in an object store: s3://..., rados://...,
// or file:///folder where that is the folder of one.
bool IsRemoteAddress(const std::string& where);

// A directory with the store as it is there now.
struct CachedStore {
  std::string directory;
  // While it lives nobody removes the directory.
  std::shared_ptr<const void> hold;
  std::shared_ptr<kv::ObjectStore> store;
  std::string uuid;
  std::shared_ptr<kv::FarSegments> segments;
};

// In $XDG_CACHE_HOME/ckptree/<uuid>, or ~/.cache/ckptree/<uuid>: its rows, made
// anew where the store has new commits, and the leaf records that were read.
// What nobody uses any more is removed. Safe to delete while nobody reads.
// Shared by processes. kNotFound: there is no store, or nothing was shipped
// yet. kUnavailable, within about a minute: nobody answers there.
absl::StatusOr<CachedStore> CacheOf(const std::string& address,
                                    const kv::Options& options);

// Brings the directory up to what is there now: one request where that is
// nothing new. Processes take turns.
absl::Status AdvanceCache(const CachedStore& cached,
                          const kv::Options& options);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_REMOTE_ADDRESS_CACHE_H_
