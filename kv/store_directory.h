// SPDX-License-Identifier: Apache-2.0

// What lies in a store's directory, before any of it is opened.

#ifndef CKPTREE_KV_STORE_DIRECTORY_H_
#define CKPTREE_KV_STORE_DIRECTORY_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kv/options.h"

namespace ckptree::kv {

// Of stores of engines before the journal.
inline constexpr std::string_view kHeadName = "HEAD";
inline constexpr std::string_view kHeadTemporaryName = "HEAD.tmp";
inline constexpr const char* kLockName = "LOCK";
inline constexpr std::string_view kCreatingName = "CREATING";
inline constexpr std::string_view kDbName = "db";
inline constexpr std::string_view kJournalName = "journal";
inline constexpr std::string_view kStagingName = "staging";
inline constexpr std::string_view kLeasesName = "leases";
inline constexpr std::string_view kRequestsName = "requests";
// An index that is being made; one that was found damaged, with a time behind.
inline constexpr std::string_view kNewDbName = "db.new";
inline constexpr std::string_view kDamagedDbPrefix = "db.damaged-";
// In an index that was made anew: a table that the disk could not give then.
inline constexpr std::string_view kUnreadableTablePrefix = "unreadable-";

// A store that is made of what an object store has: it is put together in
// there, and takes the place of the folder around it as a whole.
inline constexpr std::string_view kFetchingName = "store.fetching";

// There while the index is known to be damaged: the next open for writing
// makes it anew.
inline constexpr std::string_view kRebuildName = "rebuild";

// What the store has to do with an object store; of core/remote.
inline constexpr std::string_view kRemoteName = "remote";
inline constexpr std::string_view kRemoteTemporaryName = "remote.tmp";
inline constexpr std::string_view kRemoteHead = "ckptree remote 1\n";

std::string Join(const std::string& directory, std::string_view name);

// Whether a store has a file or folder of that name.
bool IsOwnName(std::string_view name);
// Where a reader finds the index of a store: `db`; `db.new` where a crash
// between two names left that one alone, until the next open for writing.
std::string IndexDirectory(const std::string& directory);
// What is behind the last slash; a view into `path`.
std::string_view BaseName(std::string_view path);

// The absolute form, links in it left as they are.
std::string AbsolutePath(const std::string& directory);

struct StoreDirectory {
  bool exists = false;
  bool head = false;
  bool head_temporary = false;
  bool creating = false;
  bool db = false;
  bool new_db = false;
  bool journal = false;
  bool staging = false;
  bool fetching = false;
  std::vector<std::string> own;      // Names that are ours.
  std::vector<std::string> foreign;  // All others.
  // The highest version in a name in staging: "v<decimal>" at its start.
  std::uint64_t highest_staged_version = 0;
  std::vector<std::string> warnings;  // On its permissions; no damage.

  // Nothing of a store, nor of one that was begun; there may be what is of
  // others, and what was fetched of one.
  bool HoldsNoStore() const {
    return !head && !head_temporary && !creating && !db && !new_db &&
           !journal && !staging;
  }
};

// Looks with lstat and follows nothing. kFailedPrecondition at the first link
// or device that has a name of ours, or is in db or staging; a missing
// directory is not an error. What has another name is not looked at.
absl::StatusOr<StoreDirectory> LookAt(const std::string& directory);

// The uuid that the journal in `directory` names, whatever else is wrong with
// it; nothing where no file of it can be read.
std::optional<std::array<std::uint8_t, 16>> UuidOfStore(
    const Options& options, const std::string& directory);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_STORE_DIRECTORY_H_
