// SPDX-License-Identifier: Apache-2.0

// A source, sent piece by piece, several of them at once.

#ifndef CKPTREE_KV_OBJECTS_PIECES_H_
#define CKPTREE_KV_OBJECTS_PIECES_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kv/object_store.h"

namespace ckptree::kv {

// Calls `send` for each `piece_bytes` of `source`, numbered from 0; the last
// one may be shorter. Up to `at_once` pieces are in memory: while some are sent
// the next one is read, and what `send` computes of one keeps no other from the
// network. The source is read from its beginning to its end, by one thread at a
// time. The first error ends it, once what is being sent has ended.
absl::Status SendPieces(const ObjectSource& source, std::uint64_t piece_bytes,
                        std::size_t at_once,
                        absl::FunctionRef<absl::Status(std::uint64_t number,
                                                       std::string_view bytes)>
                            send);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_OBJECTS_PIECES_H_
