// SPDX-License-Identifier: Apache-2.0

// What only tests may do to a database.

#ifndef CKPTREE_KV_TESTING_DATABASE_PEER_H_
#define CKPTREE_KV_TESTING_DATABASE_PEER_H_

#include <memory>

#include "kv/database.h"
#include "kv/journal/overlay.h"

namespace ckptree::kv {

struct DatabasePeer {
  // Reads of rows go through `overlay` from here.
  static void SetOverlay(Database& database,
                         std::shared_ptr<const Overlay> overlay);
  // Of the two copies of leaf records only this one loses the file.
  static void DropFile(Database& database, const LiveFile& file);
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_TESTING_DATABASE_PEER_H_
