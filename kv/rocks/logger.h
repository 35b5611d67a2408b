// SPDX-License-Identifier: Apache-2.0

// Where RocksDB's log lines go: to the caller, never into files.

#ifndef CKPTREE_KV_ROCKS_LOGGER_H_
#define CKPTREE_KV_ROCKS_LOGGER_H_

#include <memory>

#include "kv/options.h"

namespace rocksdb {
class Logger;
}  // namespace rocksdb

namespace ckptree::kv {

// Passes warnings and errors on to `log`, which may be null.
std::shared_ptr<rocksdb::Logger> MakeLogger(LogFn log);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_LOGGER_H_
