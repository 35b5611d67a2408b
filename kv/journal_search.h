// SPDX-License-Identifier: Apache-2.0

// What the journal of a store's directory still has of earlier commits.

#ifndef CKPTREE_KV_JOURNAL_SEARCH_H_
#define CKPTREE_KV_JOURNAL_SEARCH_H_

#include <functional>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "kv/options.h"

namespace ckptree::kv {

// Whether one of these commits gave a row of `records` the value that `rows`
// has for its key. Commits before the last file of all rows may be gone: false
// says nothing of them. Reads all of the journal; another may be writing to it.
absl::StatusOr<bool> JournalHasAnyOf(
    const Options& options, const std::string& directory,
    const std::map<std::string, std::string, std::less<>>& rows);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_JOURNAL_SEARCH_H_
