// SPDX-License-Identifier: Apache-2.0

#include "kv/write_batch.h"

#include <optional>
#include <string>
#include <utility>

#include "schema/spaces.h"

namespace ckptree::kv {

void WriteBatch::Put(schema::Space space, std::string key, std::string value) {
  bytes_ += key.size() + value.size();
  operations_.push_back({space, std::move(key), std::move(value), false});
}

void WriteBatch::PutBlock(std::string key, std::string value) {
  Put(schema::Space::kSmall, std::move(key), std::move(value));
  operations_.back().block = true;
}

void WriteBatch::Delete(schema::Space space, std::string key) {
  bytes_ += key.size();
  operations_.push_back({space, std::move(key), std::nullopt, false});
}

}  // namespace ckptree::kv
