// SPDX-License-Identifier: Apache-2.0

// Room that is kept for a full disk.

#ifndef CKPTREE_KV_JOURNAL_RESERVE_H_
#define CKPTREE_KV_JOURNAL_RESERVE_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "kv/options.h"

namespace ckptree::kv {

// A file of zeros that is given up when the disk is full, so that a store can
// be opened and things in it deleted. True where it was there.
inline constexpr std::size_t kReserveBytes = std::size_t{4} << 20;
bool GiveReserve(const Options& options, const std::string& directory);
// OK where it is there already. `smaller`: of what is free, where that is less;
// for the end, for nobody in this process can use it then.
absl::Status MakeReserve(const Options& options, const std::string& directory,
                         bool smaller);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_JOURNAL_RESERVE_H_
