// SPDX-License-Identifier: Apache-2.0

// Rows files of the tests, and what a reader finds in one.

#ifndef CKPTREE_TESTS_KV_ROWS_FIXTURE_H_
#define CKPTREE_TESTS_KV_ROWS_FIXTURE_H_

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/journal/row.h"
#include "kv/journal/rows_file.h"
#include "schema/spaces.h"
#include "tests/testutil/status_matchers.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::kv {

using Rows = std::map<RowKey, RowValue>;

inline RowKey Key(schema::Space space, std::string key) {
  return {space, std::move(key)};
}
inline RowKey RecordRow(int i) {
  return Key(schema::Space::kRecords, absl::StrFormat("key %04d", i));
}

inline RowsHead Head(std::uint64_t ordinal) {
  RowsHead head;
  head.uuid.fill(0xcd);
  head.ordinal = ordinal;
  head.hash.bytes.fill(0xab);
  head.incarnation = 3;
  head.version_ceiling = 0x0102030405060708;
  return head;
}

inline BlockName Name(std::uint64_t length, std::uint8_t fill) {
  BlockName name;
  name.length = length;
  name.digest.bytes.fill(fill);
  return name;
}

// `count` rows of both spaces and both kinds.
inline Rows SomeRows(int count) {
  Rows rows;
  for (int i = 0; i < count; ++i) {
    rows[RecordRow(i)] = std::string(static_cast<std::size_t>(i % 37),
                                     static_cast<char>('a' + i % 26));
    const RowKey small = Key(schema::Space::kSmall, absl::StrFormat("%08d", i));
    if (i % 3 == 0) {
      rows[small] = std::string("leaf");
    } else {
      rows[small] = Name(static_cast<std::uint64_t>(i) << 30,
                         static_cast<std::uint8_t>(i));
    }
  }
  return rows;
}

inline std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void Overwrite(const std::string& path, std::string_view content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

inline std::string Write(const testing::TempDir& dir, const Rows& rows,
                         std::uint64_t ordinal = 5,
                         std::size_t block_bytes = kRowsBlockBytes) {
  auto writer = RowsWriter::Create({}, dir.path(), Head(ordinal), block_bytes);
  EXPECT_OK(writer);
  for (const auto& [key, value] : rows) EXPECT_OK((*writer)->Add(key, value));
  EXPECT_OK((*writer)->Finish());
  EXPECT_EQ((*writer)->rows(), rows.size());
  return dir / RowsFileName(ordinal);
}

// What a reader of `path` gave before its end or its error.
struct Found {
  absl::Status status;
  Rows rows;
  std::vector<RowsDamage> damage;
};

inline Found ReadAll(const std::string& path, RowsReader::OnDamage on_damage) {
  Found found;
  auto reader = RowsReader::Open({}, path, on_damage);
  found.status = reader.status();
  if (!reader.ok()) return found;
  while (true) {
    const auto entry = (*reader)->Next();
    found.status = entry.status();
    if (!entry.ok()) {
      // It stays so.
      EXPECT_EQ((*reader)->Next().status(), found.status);
      break;
    }
    if (*entry == nullptr) break;
    EXPECT_TRUE(found.rows.empty() ||
                found.rows.rbegin()->first < (*entry)->key);
    found.rows[(*entry)->key] = (*entry)->value;
  }
  found.damage = (*reader)->damage();
  return found;
}

}  // namespace ckptree::kv

#endif  // CKPTREE_TESTS_KV_ROWS_FIXTURE_H_
