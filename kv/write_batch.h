// SPDX-License-Identifier: Apache-2.0

// The puts and deletes of one commit.

#ifndef CKPTREE_KV_WRITE_BATCH_H_
#define CKPTREE_KV_WRITE_BATCH_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schema/spaces.h"

namespace ckptree::kv {

// Ordered; the last operation on a key wins. Only kRecords and kSmall.
// Serialisable and idempotent to replay. Thread-compatible.
class WriteBatch {
 public:
  struct Operation {
    schema::Space space;
    std::string key;
    std::optional<std::string> value;  // Nothing: delete.
    bool block = false;  // Array bytes, which the journal keeps once.
  };

  void Put(schema::Space space, std::string key, std::string value);
  // Array bytes of a small save: a key of kSmall.
  void PutBlock(std::string key, std::string value);
  void Delete(schema::Space space, std::string key);

  bool empty() const { return operations_.empty(); }
  std::size_t bytes() const { return bytes_; }  // Of keys and values.
  const std::vector<Operation>& operations() const { return operations_; }

 private:
  std::vector<Operation> operations_;
  std::size_t bytes_ = 0;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_WRITE_BATCH_H_
