// SPDX-License-Identifier: Apache-2.0

// An ordered scan over one key range of one space.

#ifndef CKPTREE_KV_ITERATOR_H_
#define CKPTREE_KV_ITERATOR_H_

#include <memory>
#include <string_view>

#include "absl/status/status.h"

namespace ckptree::kv {

// Reads keys in ascending byte order as of the moment it was created; later
// writes are not seen.
//
// Keeps that moment's view alive, so old files are not reclaimed until it is
// destroyed: scan and let go. Must be destroyed before the Database that made
// it.
//
// Confined to one thread at a time.
class Iterator {
 public:
  struct Impl;
  explicit Iterator(std::unique_ptr<Impl> impl);
  Iterator(Iterator&&) noexcept;
  Iterator& operator=(Iterator&&) noexcept;
  Iterator(const Iterator&) = delete;
  Iterator& operator=(const Iterator&) = delete;
  ~Iterator();

  // False at the end of the range and after an error; status() tells which.
  bool Valid() const;

  // REQUIRES: Valid().
  void Next();

  // Moves to the first key >= `key` of the range.
  void Seek(std::string_view key);

  // The current entry. The bytes are valid until the next call to Next() or
  // Seek(). REQUIRES: Valid().
  std::string_view key() const;
  std::string_view value() const;

  // OK at a normal end. kDataLoss if a stored block failed its checksum,
  // kUnknown if the disk failed.
  absl::Status status() const;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ITERATOR_H_
