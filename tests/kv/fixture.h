// SPDX-License-Identifier: Apache-2.0

// A store of the tests of kv, and the verbs they use on it.

#ifndef CKPTREE_TESTS_KV_FIXTURE_H_
#define CKPTREE_TESTS_KV_FIXTURE_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <ios>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/database.h"
#include "kv/options.h"
#include "kv/segment_writer.h"
#include "schema/spaces.h"
#include "tests/testutil/status_matchers.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::kv {

inline constexpr std::string_view kTestUuid = "0123456789abcdef";
inline const std::string kTestStoreKey(1, '\0');

// The 8 bytes a version makes at the start of a key, then `rest`.
inline std::string VersionKey(std::uint64_t version, std::string_view rest) {
  std::string key;
  for (int shift = 56; shift >= 0; shift -= 8) {
    key.push_back(static_cast<char>((version >> shift) & 0xff));
  }
  key.append(rest);
  return key;
}

inline std::string RecordKey(std::string_view name) {
  return std::string(1, '\x0a') + std::string(name);  // A tag.
}

class KvTest : public ::testing::Test {
 protected:
  static absl::Status NoCheck(const Database&, const OpenReport&) {
    return absl::OkStatus();
  }

  std::string Store() const { return dir_ / "store"; }

  absl::StatusOr<std::unique_ptr<Database>> Create() {
    return Database::Create(Store(), options_, kTestUuid, kTestStoreKey,
                            "the store", {});
  }
  absl::StatusOr<std::unique_ptr<Database>> Open(Mode mode = Mode::kReadWrite) {
    return Database::Open(Store(), options_, mode, NoCheck);
  }
  // Opens, looks at the report and lets the open fail.
  absl::StatusOr<OpenReport> Report() {
    OpenReport seen;
    const auto opened = Database::Open(
        Store(), options_, Mode::kReadWrite,
        [&](const Database&, const OpenReport& report) -> absl::Status {
          seen = report;
          return absl::CancelledError("seen");
        });
    if (opened.status().code() != absl::StatusCode::kCancelled) {
      return opened.status();
    }
    return seen;
  }

  static CommitRequest PutRequest(std::string_view name,
                                  std::string_view value) {
    CommitRequest request;
    request.kind = CommitKind::kTag;
    request.batch.Put(schema::Space::kRecords, RecordKey(name),
                      std::string(value));
    return request;
  }
  static CommitResult Put(Database& database, std::string_view name,
                          std::string_view value) {
    return database.Commit(PutRequest(name, value));
  }
  // A save whose block rides in the batch.
  static CommitResult SmallSave(Database& database, std::uint64_t version,
                                std::size_t bytes = 100) {
    CommitRequest request;
    request.version = version;
    request.batch.PutBlock(VersionKey(version, "block"),
                           std::string(bytes, 's'));
    request.batch.Put(schema::Space::kRecords,
                      RecordKey("step" + std::to_string(version)), "row");
    return database.Commit(std::move(request));
  }

  absl::StatusOr<StagedSegment> Stage(const Database& database,
                                      std::uint64_t version,
                                      schema::Space space, int records,
                                      std::size_t bytes) {
    auto writer = SegmentWriter::Create(
        options_, space,
        database.staging_directory() + "/v" + std::to_string(version) + "-" +
            std::to_string(static_cast<int>(space)) + ".sst",
        /*expected_bytes=*/1 << 20);
    if (!writer.ok()) return writer.status();
    for (int i = 0; i < records; ++i) {
      const std::string key = ChunkKey(version, i);
      const std::string value = Payload(version, i, bytes);
      // A segment begins with its header, which is not aligned.
      const absl::Status added = space == schema::Space::kChunks && i > 0
                                     ? (*writer)->AddAligned(key, value)
                                     : (*writer)->Add(key, value);
      if (!added.ok()) return added;
    }
    return (*writer)->Finish();
  }

  // Writes files again with the records that `keep` (key, bytes) is true of.
  template <typename Keep>
  static absl::StatusOr<std::uint64_t> RewriteKeeping(
      Database& database, schema::Space space,
      const std::vector<LiveFile>& files, Keep keep) {
    const auto rewrite = [&keep](std::string_view key, std::string_view value,
                                 std::string*) {
      return keep(key, value.size()) ? Rewritten::kAsItIs : Rewritten::kDropped;
    };
    return database.Rewrite(space, files, rewrite);
  }

  // The table that has `bytes`, and where in it they stand.
  std::optional<std::pair<std::string, std::size_t>> FindTable(
      const std::string& bytes) {
    for (const auto& entry :
         std::filesystem::directory_iterator(Store() + "/db")) {
      if (entry.path().extension() != ".sst") continue;
      std::string all(entry.file_size(), '\0');
      std::ifstream(entry.path(), std::ios::binary)
          .read(all.data(), static_cast<std::streamsize>(all.size()));
      const std::size_t at = all.find(bytes);
      if (at != std::string::npos) return {{entry.path(), at}};
    }
    return std::nullopt;
  }

  static std::string ChunkKey(std::uint64_t version, int i) {
    return VersionKey(version, VersionKey(static_cast<std::uint64_t>(i), ""));
  }
  static std::string Payload(std::uint64_t version, int i, std::size_t bytes) {
    std::string value(bytes, static_cast<char>('a' + i % 26));
    return std::to_string(version) + "/" + std::to_string(i) + value;
  }

  testing::TempDir dir_;
  Options options_;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_TESTS_KV_FIXTURE_H_
