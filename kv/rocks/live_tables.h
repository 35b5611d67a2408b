// SPDX-License-Identifier: Apache-2.0

// Which tables may have a key.

#ifndef CKPTREE_KV_ROCKS_LIVE_TABLES_H_
#define CKPTREE_KV_ROCKS_LIVE_TABLES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "kv/rocks/instance.h"
#include "schema/spaces.h"

namespace ckptree::kv {

// The tables of an instance as of the last listing. Those of `leaves` and
// `chunks` never change and never overlap, so none of RocksDB's own machinery
// is needed to read one; those of `small` may overlap.
//
// Thread-compatible.
class LiveTables {
 public:
  struct Table {
    std::string first_key;
    std::string last_key;
    std::string path;
    std::uint64_t bytes = 0;
  };
  using Tables = absl::InlinedVector<const Table*, 4>;

  // Those whose range has `key`: one at most but in `small`. Lists the tables
  // where that was not done since Forget(), or was of another instance. Valid
  // until then.
  Tables Find(const Instance& instance, schema::Space space,
              std::string_view key);

  // The set of tables changed.
  void Forget() { listed_of_ = 0; }
  bool listed() const { return listed_of_ != 0; }

 private:
  struct OfSpace {
    std::vector<Table> tables;  // By first key.
    // The highest last key of the tables up to each: further to the front none
    // has a key that is above it.
    std::vector<std::string> reach;
  };

  void List(const Instance& instance);

  std::uint64_t listed_of_ = 0;  // The instance, by its serial; 0: none.
  std::array<OfSpace, schema::kSpaceCount> spaces_;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_LIVE_TABLES_H_
