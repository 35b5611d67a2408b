// SPDX-License-Identifier: Apache-2.0

// What an Iterator moves through.

#ifndef CKPTREE_KV_JOURNAL_CURSOR_H_
#define CKPTREE_KV_JOURNAL_CURSOR_H_

#include <string_view>

#include "absl/status/status.h"

namespace ckptree::kv {

// Entries in ascending byte order of their keys, within the bounds that it was
// made with. Not positioned before the first Seek().
//
// Confined to one thread at a time.
class Cursor {
 public:
  virtual ~Cursor() = default;

  // The first entry >= `key`.
  virtual void Seek(std::string_view key) = 0;
  // REQUIRES: Valid().
  virtual void Next() = 0;
  // False at the end and after an error; status() tells which.
  virtual bool Valid() const = 0;
  // Valid until the next Next() or Seek(). REQUIRES: Valid().
  virtual std::string_view key() const = 0;
  virtual std::string_view value() const = 0;
  virtual absl::Status status() const = 0;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_JOURNAL_CURSOR_H_
