// SPDX-License-Identifier: Apache-2.0

// What an iterator of the database holds.

#ifndef CKPTREE_KV_ROCKS_ITERATOR_IMPL_H_
#define CKPTREE_KV_ROCKS_ITERATOR_IMPL_H_

#include <memory>

#include "kv/iterator.h"
#include "kv/journal/cursor.h"
#include "kv/process_mark.h"

namespace ckptree::kv {

struct Iterator::Impl {
  ProcessMark mark;
  std::unique_ptr<Cursor> cursor;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_ITERATOR_IMPL_H_
