// SPDX-License-Identifier: Apache-2.0

// The pages of memory that a read fills.

#ifndef CKPTREE_CORE_VERSION_FRESH_PAGES_H_
#define CKPTREE_CORE_VERSION_FRESH_PAGES_H_

#include <atomic>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "core/process/first_error.h"

namespace ckptree::internal {

// Has the kernel make the pages of memory that nobody touched, many at once and
// ahead of the reads that fill them: one by one, as the first byte of each
// comes, takes longer, and the disk waits for it. Memory that is there stays as
// it is. Only to be faster: what fails or is left out costs nothing but time.
//
// Thread-safe.
class FreshPages {
 public:
  // Below this a piece is not worth a call.
  static constexpr std::size_t kWorthIt = std::size_t{64} << 10;

  // Pieces in the order in which they are filled; empty ones are left out.
  explicit FreshPages(std::vector<std::span<std::byte>> pieces)
      : pieces_(std::move(pieces)), taken_(pieces_.size()) {}

  // Those of piece `index`, unless somebody made them or is about to.
  void Make(std::size_t index);

  // Those of all pieces from `next` on, which others move while this goes on;
  // until one of them fails.
  void MakeAhead(const std::atomic<std::size_t>& next, const FirstError& error);

 private:
  const std::vector<std::span<std::byte>> pieces_;
  std::vector<std::atomic<bool>> taken_;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_VERSION_FRESH_PAGES_H_
