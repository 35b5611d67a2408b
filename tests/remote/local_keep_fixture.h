// SPDX-License-Identifier: Apache-2.0

// A store in a folder that ships to another one, and keeps some steps.

#ifndef CKPTREE_TESTS_REMOTE_LOCAL_KEEP_FIXTURE_H_
#define CKPTREE_TESTS_REMOTE_LOCAL_KEEP_FIXTURE_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "ckptree/ckptree.h"
#include "core/version/row_scan.h"
#include "gtest/gtest.h"
#include "kv/database.h"
#include "schema/keys.h"
#include "schema/remote_record.h"
#include "tests/core/fixture.h"
#include "tests/remote/fixture.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::testing {

inline constexpr std::size_t kLargeSave = 3 << 20;

class LocalKeepTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(Bucket());
    setenv("XDG_CACHE_HOME", std::string(folder_ / "cache").c_str(), 1);
  }

  std::string Directory() const { return folder_ / "run"; }
  std::string Bucket() const { return folder_ / "bucket"; }
  std::string Address() const { return "file://" + Bucket(); }
  StoreOptions Remote(std::optional<Preservation> keep = LatestN{1}) {
    StoreOptions options = RemoteOptions(Address());
    options.local_keep = std::move(keep);
    options.log = [this](LogSeverity severity, std::string_view,
                         std::string_view message) {
      const absl::MutexLock lock(&mu_);
      if (severity != LogSeverity::kInfo) said_.emplace_back(message);
    };
    return options;
  }
  std::vector<std::string> TakeSaid() {
    const absl::MutexLock lock(&mu_);
    return std::exchange(said_, {});
  }
  StoreOptions ReadOnly() {
    StoreOptions options = QuietOptions();
    options.create_if_missing = false;
    options.read_only = true;
    return options;
  }

  // Steps of new content each; closed.
  void Save(std::int64_t first, std::int64_t last,
            std::optional<Preservation> keep = LatestN{1}) {
    Store store = Store::Open(Directory(), Remote(std::move(keep))).value();
    for (std::int64_t step = first; step <= last; ++step) {
      SaveStep(store, step, kLargeSave);
    }
    const absl::Status closed = store.Close();
    ASSERT_TRUE(closed.ok()) << closed;
  }
  void ExpectSteps(Store& store, std::int64_t first, std::int64_t last) {
    for (std::int64_t step = first; step <= last; ++step) {
      ExpectStep(store, step, kLargeSave);
    }
  }

  // Bytes of array files here. Small ones do not count, be they of the index or
  // the end of what a thread wrote: what is here lies up to 1/16 of a step for
  // each thread above this.
  std::uint64_t BytesHere() const {
    std::uint64_t bytes = 0;
    for (const auto& entry :
         std::filesystem::directory_iterator(Directory() + "/db")) {
      if (entry.path().extension() == ".sst" &&
          entry.file_size() > kLargeSave / 16) {
        bytes += entry.file_size();
      }
    }
    return bytes;
  }
  // Rows that say that a segment is elsewhere.
  std::vector<std::string> FarRows() const {
    std::vector<std::string> keys;
    const auto database =
        kv::Database::Open(Directory(), {}, kv::Mode::kRead,
                           [](const kv::Database&, const kv::OpenReport&) {
                             return absl::OkStatus();
                           });
    EXPECT_TRUE(database.ok()) << database.status();
    const absl::Status read = internal::ScanRows(
        **database, schema::Row::kFar,
        [&](std::string_view key, std::string_view value) {
          EXPECT_TRUE(schema::DecodeFarSegment(value).ok());
          keys.push_back(schema::DescribeKey(schema::Space::kRecords, key));
          return absl::OkStatus();
        });
    EXPECT_TRUE(read.ok()) << read;
    return keys;
  }
  void Hide() { std::filesystem::rename(Bucket(), Bucket() + ".away"); }
  void Show() { std::filesystem::rename(Bucket() + ".away", Bucket()); }

  absl::Status ReadOf(Store& store, std::int64_t step) {
    const absl::StatusOr<Step> opened = store.OpenStep(step);
    if (!opened.ok()) return opened.status();
    Bytes bytes(kLargeSave);
    return opened->Read("params/w", std::span(bytes));
  }

  TempDir folder_;

 private:
  absl::Mutex mu_;
  std::vector<std::string> said_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_REMOTE_LOCAL_KEEP_FIXTURE_H_
