// SPDX-License-Identifier: Apache-2.0

// A disk that keeps some steps of a store that ships: what leaves it is read in
// the object store, and nothing else is other than before.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "ckptree/ckptree.h"
#include "core/version/row_scan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/database.h"
#include "schema/keys.h"
#include "schema/remote_record.h"
#include "tests/core/fixture.h"
#include "tests/objects/counting_store.h"
#include "tests/remote/fixture.h"
#include "tests/remote/local_keep_fixture.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(LocalKeepTest, WhatNoKeptStepNeedsLeavesTheDisk) {
  Save(1, 4);
  EXPECT_THAT(TakeSaid(), IsEmpty());
  EXPECT_LT(BytesHere(), 3 * kLargeSave / 2);
  EXPECT_GE(BytesHere(), kLargeSave / 2);
  EXPECT_GE(FarRows().size(), 3u);
  {
    Store store = Store::Open(Directory(), Remote()).value();
    EXPECT_THAT(store.Info().warnings, IsEmpty());
    ExpectSteps(store, 1, 4);
    ExpectWhole(store);
    ASSERT_TRUE(store.Close().ok());
  }
  // Who only reads has the credentials of its process.
  Store reader = Store::Open(Directory(), ReadOnly()).value();
  EXPECT_THAT(reader.Info().warnings, IsEmpty());
  ExpectSteps(reader, 1, 4);
  ExpectWhole(reader);
  // And by its address all is as ever.
  Store there = Store::Open(Address(), ReadOnly()).value();
  ExpectSteps(there, 1, 4);
}

TEST_F(LocalKeepTest, WithoutItsRemoteOnlyWhatLeftIsMissed) {
  Save(1, 3);
  Hide();
  {
    Store store = Store::Open(Directory(), QuietOptions()).value();
    EXPECT_THAT(store.Info().warnings, IsEmpty());
    EXPECT_THAT(StepsOf(store), ElementsAre(1, 2, 3));
    ExpectStep(store, 3, kLargeSave);
    const absl::Status read = ReadOf(store, 1);
    EXPECT_TRUE(absl::IsUnavailable(read)) << read;
    EXPECT_FALSE(fs::exists(Bucket()));
    EXPECT_THAT(std::string(read.message()),
                AllOf(HasSubstr("step 1"), HasSubstr(Address())));
    // Once, and not for each of its blocks.
    const absl::StatusOr<VerifyReport> report =
        store.Verify({.level = VerifyOptions::Level::kDeep});
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_THAT(report->findings, SizeIs(1));
    EXPECT_EQ(report->findings[0].severity, Finding::Severity::kWarning);
    EXPECT_THAT(report->findings[0].what,
                AllOf(HasSubstr("not looked at"), HasSubstr(Address())));
    // What is no array is here.
    EXPECT_EQ(store.OpenStep(1)->Read<std::int64_t>("count").value(), 1);
    // It can be saved to, and removed from.
    SaveStep(store, 4, kLargeSave);
    ASSERT_TRUE(store.Delete(2).ok());
    ASSERT_TRUE(store.Collect().ok());
    ASSERT_TRUE(store.Close().ok());
  }
  Show();
  Store store = Store::Open(Directory(), Remote()).value();
  EXPECT_THAT(StepsOf(store), ElementsAre(1, 3, 4));
  ExpectStep(store, 1, kLargeSave);
  ExpectStep(store, 4, kLargeSave);
  ExpectWhole(store);
}

// A server that is without the request, or rights that lack it.
TEST_F(LocalKeepTest, WhereUnfinishedUploadsAreNotListedAllElseGoesOn) {
  Save(1, 2, std::nullopt);
  for (const absl::Status& refused :
       {absl::UnimplementedError("501 NotImplemented"),
        absl::PermissionDeniedError("403 AccessDenied"),
        absl::UnavailableError("503 SlowDown")}) {
    RequestCount count;
    count.SetHook([&](const std::string& what) {
      return what.starts_with("uploads ") ? refused : absl::OkStatus();
    });
    fs::remove_all(Directory());
    TakeSaid();
    Store store = Store::Open(Directory(), Remote()).value();
    const std::int64_t newest = StepsOf(store).back();
    for (const std::int64_t step : {newest + 1, newest + 2}) {
      SaveStep(store, step, kLargeSave);
      ASSERT_TRUE(store.WaitReplicated(kLong).ok());
    }
    ASSERT_TRUE(store.Close().ok());
    EXPECT_THAT(TakeSaid(),
                ElementsAre(AllOf(HasSubstr("unfinished uploads"),
                                  HasSubstr(std::string(refused.message())))));
    EXPECT_THAT(count.requests(), Contains(HasSubstr("uploads ")).Times(1));
    EXPECT_LT(BytesHere(), 2 * kLargeSave);
    EXPECT_FALSE(FarRows().empty());
  }
}

TEST_F(LocalKeepTest, AllBringsBackAll) {
  Save(1, 3);
  ASSERT_FALSE(FarRows().empty());
  {
    Store store = Store::Open(Directory(), Remote(PreserveAll{})).value();
    ASSERT_TRUE(store.Close().ok());
  }
  EXPECT_THAT(FarRows(), IsEmpty());
  Hide();
  Store store = Store::Open(Directory(), ReadOnly()).value();
  ExpectSteps(store, 1, 3);
  ExpectWhole(store);
}

TEST_F(LocalKeepTest, WithoutThePolicyWhatLeftStaysAway) {
  Save(1, 2);
  const std::vector<std::string> before = FarRows();
  Save(3, 3, std::nullopt);
  EXPECT_EQ(FarRows(), before);
  Hide();
  Store store = Store::Open(Directory(), ReadOnly()).value();
  EXPECT_FALSE(ReadOf(store, 1).ok());
  ExpectSteps(store, 2, 3);
}

// Of two that are kept, one is in the middle.
TEST_F(LocalKeepTest, AnyPolicySaysWhich) {
  Save(1, 5, CustomSteps{{2}});
  Hide();
  Store store = Store::Open(Directory(), ReadOnly()).value();
  for (const std::int64_t step : {2, 5}) ExpectStep(store, step, kLargeSave);
  for (const std::int64_t step : {1, 3, 4}) {
    EXPECT_FALSE(ReadOf(store, step).ok()) << step;
  }
}

// A kept step has blocks that an older one wrote.
TEST_F(LocalKeepTest, WhatAKeptStepSharesStays) {
  {
    Store store = Store::Open(Directory(), Remote()).value();
    const Bytes same = RandomBytes(kLargeSave, 77);
    for (std::int64_t step = 1; step <= 3; ++step) {
      const Bytes other = RandomBytes(kLargeSave, step);
      StepBuilder builder = store.Begin(step);
      builder.Put("frozen", Uint8s(same)).Put("params/w", Uint8s(other));
      ASSERT_TRUE(std::move(builder).Commit().WaitCommitted(kLong).ok());
    }
    ASSERT_TRUE(store.Close().ok());
  }
  Hide();
  Store store = Store::Open(Directory(), ReadOnly()).value();
  ExpectStep(store, 3, kLargeSave);
  Bytes frozen(kLargeSave);
  ASSERT_TRUE(store.OpenStep(3)->Read("frozen", std::span(frozen)).ok());
  EXPECT_EQ(frozen, RandomBytes(kLargeSave, 77));
  EXPECT_FALSE(ReadOf(store, 2).ok());
}

TEST_F(LocalKeepTest, AStepThatIsRemovedTakesItsRowsAlong) {
  Save(1, 3);
  {
    Store store = Store::Open(Directory(), Remote()).value();
    ASSERT_TRUE(store.Delete(1).ok());
    ASSERT_TRUE(store.Delete(2).ok());
    ASSERT_TRUE(store.Collect().ok());
    ExpectStep(store, 3, kLargeSave);
    ExpectWhole(store);
    ASSERT_TRUE(store.Close().ok());
  }
  EXPECT_THAT(FarRows(), IsEmpty());
}

// One that does not come back keeps no other away.
TEST_F(LocalKeepTest, OneBadObjectKeepsNoOtherAway) {
  Save(1, 4);
  std::vector<fs::path> objects = ObjectsOf(Bucket(), "segment");
  std::sort(objects.begin(), objects.end());
  const std::size_t away = FarRows().size();
  ASSERT_GE(away, 3u);
  // Of the first version: its name says so.
  for (const fs::path& object : objects) {
    if (object.filename().string().starts_with("1-1-0-3-0-")) {
      fs::remove(object);
    }
  }
  TakeSaid();
  Save(5, 5, PreserveAll{});
  EXPECT_EQ(FarRows().size(), 1u);
  EXPECT_THAT(TakeSaid(), Contains(HasSubstr("does not come back")));
}

// Rule g: what a crash left between the row and the drop.
TEST_F(LocalKeepTest, AFileBesideItsFarRowCounts) {
  Save(1, 2, std::nullopt);
  ASSERT_THAT(FarRows(), IsEmpty());
  {
    std::unique_ptr<kv::Database> database =
        kv::Database::Open(Directory(), {}, kv::Mode::kReadWrite,
                           [](const kv::Database&, const kv::OpenReport&) {
                             return absl::OkStatus();
                           })
            .value();
    kv::CommitRequest request;
    request.kind = kv::CommitKind::kCollect;
    ASSERT_TRUE(
        internal::ScanRows(*database, schema::Row::kSegment,
                           [&](std::string_view key, std::string_view) {
                             const auto fields = *schema::DecodeSegmentKey(key);
                             if (fields.space != schema::Space::kChunks) {
                               return absl::OkStatus();
                             }
                             schema::FarSegment far;
                             far.living.segment.segment = fields;
                             far.living.segment.attempt = std::string(16, 'a');
                             far.living.segment.bytes = 9;
                             far.living.era = 1;
                             far.address = Address();
                             request.batch.Put(schema::Space::kRecords,
                                               schema::FarKey(fields),
                                               schema::EncodeFarSegment(far));
                             return absl::OkStatus();
                           })
            .ok());
    ASSERT_FALSE(request.batch.empty());
    ASSERT_TRUE(database->Commit(std::move(request)).status.ok());
    ASSERT_TRUE(database->Close().ok());
  }
  {
    // Who reads beside it takes the file where the object is not there.
    Store reader = Store::Open(Directory(), ReadOnly()).value();
    ExpectSteps(reader, 1, 2);
  }
  Store store = Store::Open(Directory(), QuietOptions()).value();
  ExpectSteps(store, 1, 2);
  ASSERT_TRUE(store.Close().ok());
  EXPECT_THAT(FarRows(), IsEmpty());
}

// Rule d: the object is not what was put, or gone.
TEST_F(LocalKeepTest, WhatIsNotThereAsItWasBuiltStays) {
  Save(1, 3, std::nullopt);
  const std::uint64_t all = BytesHere();
  std::vector<fs::path> objects = ObjectsOf(Bucket(), "segment");
  std::sort(objects.begin(), objects.end());
  for (const fs::path& object : objects) {
    fs::permissions(object, fs::perms::owner_all);
    std::fstream file(object, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(fs::file_size(object) / 2));
    file.put('\x5a').put('\x5b').put('\x5c');
  }
  {
    Store store = Store::Open(Directory(), Remote()).value();
    ASSERT_TRUE(store.Close().ok());
  }
  EXPECT_THAT(TakeSaid(), Contains(HasSubstr("are uploaded again")));
  // What left by now left behind an upload that was compared, too.
  EXPECT_LE(BytesHere(), all);
  {
    Store store = Store::Open(Directory(), ReadOnly()).value();
    ExpectSteps(store, 1, 3);
  }
  // They go once what is there is whole again.
  Save(4, 4);
  EXPECT_LT(BytesHere(), 3 * kLargeSave / 2);
  Store store = Store::Open(Directory(), ReadOnly()).value();
  ExpectSteps(store, 1, 4);
}

TEST_F(LocalKeepTest, AnotherAddressIsRefused) {
  Save(1, 2);
  StoreOptions options = Remote();
  fs::create_directory(Bucket() + "2");
  options.remote = "file://" + Bucket() + "2";
  // As for a second copy of all of it.
  fs::remove(Directory() + "/remote");
  const absl::StatusOr<Store> refused = Store::Open(Directory(), options);
  ASSERT_TRUE(absl::IsFailedPrecondition(refused.status())) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()),
              AllOf(HasSubstr(Address() + " alone"), HasSubstr("local_keep")));
  // Emptied, it is no second copy either.
  fs::remove_all(Bucket());
  fs::create_directory(Bucket());
  const absl::StatusOr<Store> emptied = Store::Open(Directory(), Remote());
  ASSERT_TRUE(absl::IsFailedPrecondition(emptied.status())) << emptied.status();
  EXPECT_THAT(std::string(emptied.status().message()),
              HasSubstr("no store any more"));
}

// What the one that took over removed is neither a step that is gone here nor
// damage here.
TEST_F(LocalKeepTest, WhatWasDeletedThereIsSaidByName) {
  Save(1, 3);
  for (const fs::path& object : ObjectsOf(Bucket(), "segment")) {
    fs::remove(object);
  }
  Store store = Store::Open(Directory(), ReadOnly()).value();
  ExpectStep(store, 3, kLargeSave);
  const absl::Status read = ReadOf(store, 1);
  EXPECT_TRUE(absl::IsFailedPrecondition(read)) << read;
  EXPECT_FALSE(IsStepGone(read));
  EXPECT_THAT(std::string(read.message()),
              AllOf(HasSubstr("step 1"), HasSubstr("gone from " + Address())));
}

TEST_F(LocalKeepTest, WhatCannotBeIsRefusedAtTheCall) {
  StoreOptions options = Remote();
  options.remote_grace = absl::Seconds(59);
  EXPECT_TRUE(
      absl::IsInvalidArgument(Store::Open(Directory(), options).status()));
  options = Remote(LatestN{-1});
  EXPECT_FALSE(Store::Open(Directory(), options).ok());
  options = Remote(KeepIf{"mine", nullptr});
  EXPECT_THAT(std::string(Store::Open(Directory(), options).status().message()),
              HasSubstr("mine"));
  options = QuietOptions();
  options.create_if_missing = true;
  options.local_keep = LatestN{1};
  EXPECT_THAT(std::string(Store::Open(Directory(), options).status().message()),
              HasSubstr("local_keep"));
  EXPECT_FALSE(fs::exists(Directory()));
}

}  // namespace
}  // namespace ckptree::testing
