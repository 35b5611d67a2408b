// SPDX-License-Identifier: Apache-2.0

// How a directory becomes a store: from an empty one, or one with files of
// others, to one that an open finds. Until the mark CREATING is gone, or a
// second commit is there, no open takes it for a store; whatever lies there was
// never acknowledged, and the next creation removes it.

#ifndef CKPTREE_KV_STORE_CREATION_H_
#define CKPTREE_KV_STORE_CREATION_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv/options.h"
#include "kv/store_lock.h"

namespace ckptree::kv {

// Whether `db` or `journal` in there has a file that is called as one of a
// store, or cannot be looked at: else folders of these names are of others.
bool HasFilesOfStore(const Options& options, const std::string& directory);

// kFailedPrecondition: in `db` or `journal` of the store stands what no store
// made.
absl::Status CheckInside(const Options& options, const std::string& directory);

// OK where a store may be made: nothing of one is there, or only what an
// unfinished creation left. Files of others stay beside it, but for what may
// be checkpoints: who trained with these and names their folder would begin
// anew. A lost journal alone never makes a store look unfinished.
// kAlreadyExists: there is a store; kInvalidArgument: another one may not be
// made beside what is there.
absl::Status MayCreate(const Options& options, const std::string& directory);

// Whether a journal beside the mark of a creation goes on behind its first
// commit: no creation does, so that the mark is not one. Fails where the disk
// does not give the journal: a store may be there, and nobody creates one then.
absl::StatusOr<bool> GoesOnBesideMark(const Options& options,
                                      const std::string& directory);

// Makes the directory where it is absent, its name durable in its parent, and
// locks it. Errors of MayCreate(), and of StoreLock::Acquire(); kNotFound where
// the folder above it is absent.
absl::StatusOr<std::unique_ptr<StoreLock>> LockForCreation(
    const Options& options, const std::string& directory);

// Puts the mark up, durably, and removes what an unfinished creation left.
// `directory` is locked by the caller, here and below.
absl::Status BeginCreation(const Options& options,
                           const std::string& directory);
// Takes the mark down, durably: from then on there is a store.
absl::Status EndCreation(const Options& options, const std::string& directory);

// Ends a creation that was begun with the store that was put together, and
// closed, in the folder kFetchingName of `directory`: by names within one file
// system, also where `directory` is a mount, a link, or has files of others. A
// crash leaves what an unfinished creation leaves, or the store.
absl::Status TakeFetched(const Options& options, const std::string& directory);

// Removes the store in `directory`, which the caller has locked, and leaves
// the directory and what is of others. A crash leaves the store, or what an
// unfinished creation leaves. The lock's file goes last.
absl::Status RemoveParts(const Options& options, const std::string& directory);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_STORE_CREATION_H_
