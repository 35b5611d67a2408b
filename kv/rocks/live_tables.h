// SPDX-License-Identifier: Apache-2.0

// Which file of `leaves` or `chunks` has a key.

#ifndef CKPTREE_KV_ROCKS_LIVE_TABLES_H_
#define CKPTREE_KV_ROCKS_LIVE_TABLES_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "kv/rocks/instance.h"
#include "schema/spaces.h"

namespace ckptree::kv {

// The live files of an instance as of the last listing. Files of those spaces
// never change and never overlap, so none of RocksDB's own machinery is needed
// to read one.
//
// Thread-compatible.
class LiveTables {
 public:
  struct Table {
    std::string last_key;
    std::string path;
    std::uint64_t bytes = 0;
  };

  // Null where no file's range has `key`. Lists the files where that was not
  // done since Forget(). Valid until then.
  const Table* Find(const Instance& instance, schema::Space space,
                    std::string_view key);

  // The set of live files changed.
  void Forget() { listed_ = false; }
  bool listed() const { return listed_; }

 private:
  void List(const Instance& instance);

  bool listed_ = false;
  std::array<std::map<std::string, Table, std::less<>>, schema::kSpaceCount>
      by_first_key_;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_LIVE_TABLES_H_
