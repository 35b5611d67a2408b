// SPDX-License-Identifier: Apache-2.0

// Leaf records are asked for before they are read.

#ifndef CKPTREE_KV_ROCKS_RECORDS_AHEAD_H_
#define CKPTREE_KV_ROCKS_RECORDS_AHEAD_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <span>
#include <string>

#include "kv/monotonic.h"
#include "kv/rocks/table_files.h"

namespace ckptree::kv {

// Of many leaf records that come out of the disk the next ones are asked for
// while one is read: one after the other each would take as long as the disk
// takes to answer. Where they are in the page cache nothing is asked for.
//
// Confined to one thread. `keys` must outlive it.
class RecordsAhead {
 public:
  explicit RecordsAhead(std::span<const std::string> keys) : keys_(keys) {}

  // Reads the record `i`, of which `near` is the table of the one before.
  template <typename Read>
  auto Around(std::size_t i, const NearTable& near, const Read& read) {
    if (keys_.size() < kFew) return read();
    if (slow_ == kMostSlow) {
      if (asked_ <= i + kAhead / 2) Ask(i, near);
      return read();
    }
    const TableFile* const table = near.file.get();
    const auto begun = std::chrono::steady_clock::now();
    auto value = read();
    const auto took = std::chrono::steady_clock::now() - begun;
    // To open a table takes long, too.
    if (near.file.get() == table) slow_ = took >= kReadOfDisk ? slow_ + 1 : 0;
    return value;
  }

 private:
  // So few are read before asking would help.
  static constexpr std::size_t kFew = 8;
  // What a disk is asked for at once.
  static constexpr std::size_t kAhead = 128;
  static constexpr int kMostSlow = 2;  // Once may be chance.

  void Ask(std::size_t i, const NearTable& near) {
    asked_ = std::max(asked_, i);
    const std::size_t count = std::min(kAhead, keys_.size() - asked_);
    asked_ += TableFiles::PrefetchRecords(keys_.subspan(asked_, count), near);
  }

  const std::span<const std::string> keys_;
  int slow_ = 0;           // Reads, one after the other.
  std::size_t asked_ = 0;  // Those before this one.
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_RECORDS_AHEAD_H_
