// SPDX-License-Identifier: Apache-2.0

// What a store's directory keeps of the object store that it ships to: the file
// `remote` in it.

#ifndef CKPTREE_CORE_REMOTE_LOCAL_NOTE_H_
#define CKPTREE_CORE_REMOTE_LOCAL_NOTE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv/options.h"

namespace ckptree::internal {

struct LocalNote {
  std::string local;    // Names the directory; 32 hexadecimal digits.
  std::string fenced;   // Who took the store over from it; empty: nobody.
  std::string address;  // Where it was shipped to last; empty: nobody knows.
};

// A new one where there is none, or where the directory is a copy of the one
// that it was written in. kDataLoss where it is not one.
absl::StatusOr<LocalNote> ReadLocalNote(const kv::Options& options,
                                        const std::string& directory);
// Durable, and never half there.
absl::Status WriteLocalNote(const kv::Options& options,
                            const std::string& directory,
                            const LocalNote& note);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_REMOTE_LOCAL_NOTE_H_
