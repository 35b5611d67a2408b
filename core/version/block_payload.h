// SPDX-License-Identifier: Apache-2.0

// The payload of a block of array bytes, plain or coded.

#ifndef CKPTREE_CORE_VERSION_BLOCK_PAYLOAD_H_
#define CKPTREE_CORE_VERSION_BLOCK_PAYLOAD_H_

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv/database.h"
#include "kv/value.h"
#include "schema/leaf_record.h"

namespace ckptree::internal {

// The key of a chunk's block.
std::string ChunkKey(const schema::ChunkRef& ref);

// Whether the bytes of `ref` are all of its block.
bool IsWholeBlock(const schema::ChunkRef& ref);

// Owns what its bytes stand on. Thread-compatible.
class BlockPayload {
 public:
  BlockPayload() = default;
  // Of the block that `ref` is of, by its value: that itself where it is as
  // long as the payload, and what it decodes to where it is shorter. kDataLoss
  // where it cannot be either.
  static absl::StatusOr<BlockPayload> Of(const schema::ChunkRef& ref,
                                         kv::Value value);

  std::string_view view() const { return coded_ ? decoded_ : value_.view(); }
  bool coded() const { return coded_; }
  // Where it is not coded.
  kv::Value TakeValue() && { return std::move(value_); }

 private:
  friend absl::StatusOr<BlockPayload> SearchBlock(const kv::Database& database,
                                                  const schema::ChunkRef& ref,
                                                  const absl::Status& why,
                                                  bool spares);

  kv::Value value_;
  bool coded_ = false;
  std::string decoded_;
};

// The bytes of `ref` in a payload, bounds checked.
absl::StatusOr<std::string_view> SliceOf(const schema::ChunkRef& ref,
                                         std::string_view payload);

// The same, also compared with their digest. kDataLoss says what is wrong, not
// where.
absl::StatusOr<std::string_view> CheckedSlice(const schema::ChunkRef& ref,
                                              std::string_view payload);

// The payload of the block as the database reads it.
absl::StatusOr<BlockPayload> ReadPayload(const kv::Database& database,
                                         const schema::ChunkRef& ref);

// A block whose bytes of `ref` are those that were saved, looked for past
// damage beside them, where `why` may be that. `spares`: also where the segment
// is elsewhere, too.
absl::StatusOr<BlockPayload> SearchBlock(const kv::Database& database,
                                         const schema::ChunkRef& ref,
                                         const absl::Status& why,
                                         bool spares = true);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_VERSION_BLOCK_PAYLOAD_H_
