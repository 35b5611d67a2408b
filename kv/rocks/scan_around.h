// SPDX-License-Identifier: Apache-2.0

// A scan that goes on behind damage.

#ifndef CKPTREE_KV_ROCKS_SCAN_AROUND_H_
#define CKPTREE_KV_ROCKS_SCAN_AROUND_H_

#include <memory>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace rocksdb {
class Iterator;
}  // namespace rocksdb

namespace ckptree::kv {

// What a scan met.
struct ScanGaps {
  int count = 0;
  absl::Status first;  // What the first of them was.
};

using MakeIteratorFn = absl::FunctionRef<std::unique_ptr<rocksdb::Iterator>()>;

// Calls `entry` for every entry that can be read, in order; an error of `entry`
// ends the scan and is returned. Damage is passed by looking for the nearest
// later key that can be read: what lies between is a gap.
//
// `make` is asked for a new iterator at each look: in 7.8 one that met damage
// may answer a later Seek from the block it had before.
//
// Keys are told apart by their first 16 bytes, which all of ours allow but a
// digest's last byte.
absl::StatusOr<ScanGaps> ScanAround(
    MakeIteratorFn make, absl::FunctionRef<absl::Status(std::string_view key,
                                                        std::string_view value)>
                             entry);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_SCAN_AROUND_H_
