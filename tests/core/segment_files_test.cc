// SPDX-License-Identifier: Apache-2.0

// A deep verification checks files just before the chunks in them are read:
// each once, in their order, and none is passed over.

#include "core/verify/segment_files.h"

#include <cstddef>
#include <filesystem>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/engine/engine.h"
#include "core/engine/store_engine.h"
#include "core/verify/chunk_check.h"
#include "core/version/base_loader.h"
#include "core/version/block_payload.h"
#include "core/version/open_check.h"
#include "tests/core/fixture.h"
#include "tests/testutil/flip_byte.h"

namespace ckptree::testing {
namespace {

using internal::SegmentFiles;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::size_t kBytes = std::size_t{2} << 20;
constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

class SegmentFilesTest : public CoreTest {
 protected:
  // Three steps with nothing in common: a file of arrays each, in one thread.
  void SetUp() override {
    StoreOptions options = Options();
    options.threads = 1;
    Open(options);
    for (int step = 0; step < 3; ++step) {
      ASSERT_OK(Save(step, RandomBytes(kBytes, step)));
    }
    const auto files = internal::SortedLiveFiles(database());
    ASSERT_OK(files);
    for (const kv::LiveFile& file : *files) {
      if (file.space == schema::Space::kChunks) chunks_.push_back(file);
    }
    ASSERT_EQ(chunks_.size(), 3);
  }

  const kv::Database& database() {
    return internal::StoreEngine::Of(*store_).database();
  }
  SegmentFiles List(internal::SegmentFileOptions options) {
    kv::Iterator rows =
        database().Scan(schema::Space::kRecords, "", "").value();
    return SegmentFiles::List(database(), &rows, std::move(options)).value();
  }
  void Damage(std::size_t file) {
    const std::string& path = chunks_[file].path;
    FlipByte(path, std::filesystem::file_size(path) / 2);
  }
  static std::vector<Finding> Finish(SegmentFiles* files) {
    VerifyReport report;
    internal::Damage damage(&report);
    EXPECT_OK(files->Finish(std::numeric_limits<std::uint64_t>::max(), true,
                            &damage));
    return report.findings;
  }

  std::vector<kv::LiveFile> chunks_;
};

TEST_F(SegmentFilesTest, EachIsCheckedWhenItIsReachedAndOnce) {
  SegmentFiles files = List({.bytes_ahead = 0});
  EXPECT_EQ(files.CheckUpTo("").value(), chunks_[0].first_key);
  EXPECT_EQ(files.CheckUpTo(chunks_[0].last_key).value(), chunks_[1].first_key);
  Damage(0);  // Too late to be seen.
  Damage(1);
  EXPECT_EQ(files.CheckUpTo(chunks_[1].first_key).value(),
            chunks_[2].first_key);
  // What was reached is not checked again.
  EXPECT_EQ(files.CheckUpTo(chunks_[0].first_key).value(),
            chunks_[2].first_key);
  Damage(2);
  std::set<std::string> named;  // Of its checksums, and of its segment.
  for (const Finding& finding : Finish(&files)) {
    for (std::size_t i = 0; i < 3; ++i) {
      if (finding.what.find(chunks_[i].path) != std::string::npos) {
        named.insert(chunks_[i].path);
      }
    }
  }
  EXPECT_THAT(named, ElementsAre(chunks_[1].path, chunks_[2].path));
}

TEST_F(SegmentFilesTest, ThoseBehindAreReadAheadWithinTheBudget) {
  SegmentFiles two = List({.bytes_ahead = kBytes * 5 / 2});
  EXPECT_EQ(two.CheckUpTo(chunks_[0].first_key).value(), chunks_[2].first_key);
  EXPECT_EQ(two.checked_bytes(), chunks_[0].bytes + chunks_[1].bytes);
  EXPECT_EQ(two.bytes(), two.checked_bytes() + chunks_[2].bytes);
  SegmentFiles all = List({.bytes_ahead = kAll});
  EXPECT_EQ(all.CheckUpTo(chunks_[0].first_key).value(), "");
  Damage(0);
  Damage(2);
  EXPECT_THAT(Finish(&all), IsEmpty());
}

TEST_F(SegmentFilesTest, StopsWhenItIsCancelled) {
  bool cancel = false;
  SegmentFiles files = List({.cancelled = [&] { return cancel; }});
  cancel = true;
  EXPECT_THAT(files.CheckUpTo(chunks_[0].first_key),
              StatusIs(absl::StatusCode::kCancelled));
  VerifyReport report;
  internal::Damage damage(&report);
  EXPECT_THAT(files.Finish(0, true, &damage),
              StatusIs(absl::StatusCode::kCancelled));
}

// Chunks are read only so far as they were reached.
TEST_F(SegmentFilesTest, ChunksWaitForTheirFiles) {
  const auto step =
      internal::StoreEngine::Of(*store_).catalog().Resolve(AtStep(1));
  ASSERT_OK(step);
  const auto parts = internal::PartsOf(database(), **step);
  ASSERT_OK(parts);
  VerifyReport report;
  internal::Damage damage(&report);
  const auto part =
      internal::LoadPartSharing(database(), parts->at(0), nullptr, &damage);
  ASSERT_OK(part);
  std::vector<std::string> keys;
  for (const auto& leaf : (*part)->leaves) {
    for (const schema::ChunkRef& ref : leaf->record.chunks) {
      keys.push_back(internal::ChunkKey(ref));
    }
  }
  ASSERT_EQ(keys.size(), kBytes / kChunk);
  std::vector<std::string> asked;
  internal::ChunkCheckOptions options;
  options.reach = [&](std::string_view key) -> absl::StatusOr<std::string> {
    asked.emplace_back(key);
    if (asked.size() == 1) return keys[5];
    if (asked.size() == 2) return keys[30];
    return absl::DataLossError("no further");
  };
  EXPECT_THAT(CheckChunks(database(), **part, options, &report, &damage),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("no further")));
  EXPECT_THAT(asked, ElementsAre(keys[0], keys[5], keys[30]));
  EXPECT_EQ(report.chunks, 30);
  EXPECT_THAT(report.findings, IsEmpty());
}

}  // namespace
}  // namespace ckptree::testing
