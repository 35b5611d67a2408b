// SPDX-License-Identifier: Apache-2.0

// What RocksDB asks in each compaction, for the RewriteScope of its thread.

#ifndef CKPTREE_KV_ROCKS_REWRITE_FILTER_FACTORY_H_
#define CKPTREE_KV_ROCKS_REWRITE_FILTER_FACTORY_H_

#include <memory>

namespace rocksdb {
class CompactionFilterFactory;
}  // namespace rocksdb

namespace ckptree::kv {

std::shared_ptr<rocksdb::CompactionFilterFactory> MakeRewriteFilterFactory();

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_REWRITE_FILTER_FACTORY_H_
