// SPDX-License-Identifier: Apache-2.0

// A store whose index is lost, and what must be in the one that is made anew.

#ifndef CKPTREE_TESTS_KV_INDEX_FIXTURE_H_
#define CKPTREE_TESTS_KV_INDEX_FIXTURE_H_

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/database.h"
#include "kv/rocks/index_rebuild.h"
#include "kv/rocks/instance.h"
#include "kv/rocks/marker.h"
#include "tests/kv/fixture.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree::kv {

inline constexpr std::uint32_t kTableNumber = 0xffffff;

inline std::string Key(std::uint64_t version, std::uint32_t n) {
  std::string key = VersionKey(version, std::string_view("\0\0", 2));
  for (int shift = 24; shift >= 0; shift -= 8) {
    key.push_back(static_cast<char>((n >> shift) & 0xff));
  }
  return key;
}

inline std::string SmallBlockKey(std::uint64_t version, std::uint32_t n) {
  std::string key = Key(version, n);
  key.insert(10, 1, '\2');
  return key;
}

// Bytes that stand nowhere else.
inline std::string Noise(std::uint64_t seed, std::size_t bytes) {
  std::mt19937_64 random(seed);
  std::string noise(bytes, '\0');
  for (char& byte : noise) byte = static_cast<char>(random());
  return noise;
}

inline std::optional<schema::Space> SpaceOf(std::string_view value) {
  if (value == "header of chunks") return schema::Space::kChunks;
  if (value == "header of leaves") return schema::Space::kLeaves;
  return std::nullopt;
}

inline std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

inline void WriteAll(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

class IndexRebuildTest : public KvTest {
 protected:
  using Space = schema::Space;
  using Model = std::map<std::string, std::string>;

  void SetUp() override {
    options_.segment_space = SpaceOf;
    ASSERT_OK_AND_ASSIGN(database_, Create());
  }

  std::string Db() const { return Store() + "/db"; }

  // Adopts a segment of `blocks` blocks and remembers it.
  void Save(Space space, std::uint64_t version, std::uint32_t blocks,
            std::size_t bytes) {
    ASSERT_OK_AND_ASSIGN(
        auto writer,
        SegmentWriter::Create(options_, space,
                              database_->staging_directory() + "/a.sst", 0));
    Model& model = models_[space];
    const auto add = [&](std::uint32_t n, const std::string& value) {
      ASSERT_OK(space == Space::kChunks && n != 0
                    ? writer->AddAligned(Key(version, n), value)
                    : writer->Add(Key(version, n), value));
      model[Key(version, n)] = value;
    };
    add(0, space == Space::kChunks ? "header of chunks" : "header of leaves");
    for (std::uint32_t n = 1; n <= blocks; ++n) {
      add(n, Noise(version * 1000 + n, bytes + n));
    }
    add(kTableNumber, Noise(version, 100));
    ASSERT_OK_AND_ASSIGN(const StagedSegment segment, writer->Finish());
    ASSERT_OK(database_->Adopt({segment}));
  }

  // Commits blocks of `small`.
  void SaveSmall(std::uint64_t version, std::uint32_t blocks,
                 std::size_t bytes) {
    CommitRequest request;
    request.version = version;
    for (std::uint32_t n = 1; n <= blocks; ++n) {
      const std::string value = Noise(version * 1000 + n, bytes + n);
      request.batch.PutBlock(SmallBlockKey(version, n), value);
      models_[Space::kSmall][SmallBlockKey(version, n)] = value;
    }
    ASSERT_EQ(database_->Commit(std::move(request)).outcome,
              Outcome::kCommitted);
  }

  static bool IsGap(std::string_view key) {
    return key.size() == 15 && key.back() == 0;
  }

  static Model All(const Database& database, Space space) {
    Model all;
    auto scan = database.Scan(space, "", "").value();
    for (; scan.Valid(); scan.Next()) {
      if (space == Space::kChunks && IsGap(scan.key())) continue;
      all.emplace(scan.key(), scan.value());
    }
    EXPECT_OK(scan.status());
    return all;
  }

  void ExpectAllThere(const Database& database) {
    for (const Space space :
         {Space::kRecords, Space::kSmall, Space::kLeaves, Space::kChunks}) {
      EXPECT_EQ(All(database, space), models_[space])
          << static_cast<int>(space);
    }
    for (const auto& [key, value] : models_[Space::kChunks]) {
      ASSERT_OK_AND_ASSIGN(const Value view,
                           database.View(Space::kChunks, key));
      EXPECT_EQ(view.view(), value);
    }
  }

  // Takes the rows down, as a journal has them, and closes.
  void Close() {
    models_[Space::kRecords] = All(*database_, Space::kRecords);
    ASSERT_OK(database_->Close());
    database_.reset();
    ASSERT_OK_AND_ASSIGN(
        const auto index,
        Instance::Open(Role::kReadOnly, Db(), options_, nullptr, nullptr));
    for (const Space space : {Space::kRecords, Space::kSmall}) {
      ASSERT_OK_AND_ASSIGN(const auto marker, index->Get(space, kMarkerKey));
      ASSERT_TRUE(marker.has_value());
      markers_[space] = *marker;
    }
  }

  std::vector<std::string> Tables() const {
    std::vector<std::string> tables;
    for (const auto& entry : std::filesystem::directory_iterator(Db())) {
      if (entry.path().extension() == ".sst") tables.push_back(entry.path());
    }
    std::sort(tables.begin(), tables.end());
    return tables;
  }

  // The only table that holds `value`.
  std::string TableWith(std::string_view value) const {
    for (const std::string& table : Tables()) {
      if (ReadAll(table).find(value) != std::string::npos) return table;
    }
    ADD_FAILURE() << "no table";
    return "";
  }

  absl::StatusOr<RebuildReport> Rebuild(const std::string& to,
                                        const Options& options = {}) {
    return Rebuild(Db(), options_, to, options);
  }
  absl::StatusOr<RebuildReport> Rebuild(const std::string& from,
                                        const Options& from_options,
                                        const std::string& to,
                                        const Options& options) {
    const RebuildSource source{
        .db_directory = from,
        .options = from_options,
        .rows = [&](RowSink sink) -> absl::Status {
          for (const auto& [key, value] : models_[Space::kRecords]) {
            const absl::Status put = sink({Space::kRecords, key}, value);
            if (!put.ok()) return put;
          }
          for (const auto& [key, value] : models_[Space::kSmall]) {
            const absl::Status put =
                sink({Space::kSmall, key},
                     BlockName{value.size(), base::DigestOf(value)});
            if (!put.ok()) return put;
          }
          for (const auto& [space, marker] : markers_) {
            const absl::Status put =
                sink({space, std::string(kMarkerKey)}, marker);
            if (!put.ok()) return put;
          }
          return absl::OkStatus();
        },
        .find_block = [&](const RowKey& key)
            -> absl::StatusOr<std::optional<std::string>> {
          const auto found = at_hand_.find(key.key);
          if (found == at_hand_.end()) return std::nullopt;
          return found->second;
        },
        .find_damaged_block = nullptr,
        .space_of = SpaceOf};
    return RebuildIndex(source, to, options, [] { return false; });
  }

  // Rebuilds in place, as an open does.
  void Swap(RebuildReport* report) {
    const std::string to = Store() + "/db.new";
    ASSERT_OK_AND_ASSIGN(*report, Rebuild(to));
    std::filesystem::remove_all(Db());
    std::filesystem::rename(to, Db());
    ASSERT_OK_AND_ASSIGN(database_, Open());
  }

  std::map<Space, Model> models_;
  std::map<Space, std::string> markers_;
  Model at_hand_;  // Blocks that the caller has.
  std::unique_ptr<Database> database_;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_TESTS_KV_INDEX_FIXTURE_H_
