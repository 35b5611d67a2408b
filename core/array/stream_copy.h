// SPDX-License-Identifier: Apache-2.0

// A copy of much memory that is not read again soon.

#ifndef CKPTREE_CORE_ARRAY_STREAM_COPY_H_
#define CKPTREE_CORE_ARRAY_STREAM_COPY_H_

#include <cstddef>

namespace ckptree::internal {

// As std::memcpy(), past the caches where there is much: these are not filled
// with it, and the old content of its place is not read for it. The memory may
// lie anywhere, but must not overlap.
void StreamCopy(std::byte* to, const std::byte* from, std::size_t bytes);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_ARRAY_STREAM_COPY_H_
