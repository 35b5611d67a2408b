// SPDX-License-Identifier: Apache-2.0

// A value that was read, without a copy where that can be.

#ifndef CKPTREE_KV_VALUE_H_
#define CKPTREE_KV_VALUE_H_

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/digest.h"

namespace ckptree::kv {

// What a value was saved as, for a read that compares it with that.
struct Saved {
  std::uint64_t bytes = 0;
  base::Digest digest;
};

// Owns what its bytes stand on (a block, a mapping of a file) and keeps it
// alive, also when the block is dropped from the database. Must be
// destroyed before the Database it came from, unless it is mapped.
// Thread-compatible.
class Value {
 public:
  struct Impl;
  Value();
  explicit Value(std::unique_ptr<Impl> impl);
  Value(Value&&) noexcept;
  Value& operator=(Value&&) noexcept;
  Value(const Value&) = delete;
  Value& operator=(const Value&) = delete;
  ~Value();

  std::string_view view() const;
  // True where the bytes stand in a mapping of their file: nothing of the
  // database is needed any more, and closing it does not wait for this.
  bool mapped() const;
  // Whether its bytes were found to be what the read was told was saved.
  bool checked() const;

 private:
  friend class Database;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_VALUE_H_
