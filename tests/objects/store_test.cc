// SPDX-License-Identifier: Apache-2.0

// What every object store keeps to, whichever it is: a folder, or what
// servers.py has started.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/conditional_put.h"
#include "kv/object_store.h"
#include "tests/objects/fixture.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree {
namespace {

using ::ckptree::kv::PutOutcome;
using ::ckptree::testing::OnThreads;
using ::ckptree::testing::PatternSource;
using ::ckptree::testing::Soon;
using ::ckptree::testing::StoreKind;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

using StoreTest = ::ckptree::testing::ObjectStoreTest;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

TEST_F(StoreTest, TheFirstOfTwoCreatesIt) {
  EXPECT_EQ(PutIfAbsent("commit/1", "first"), PutOutcome::kCreated);
  EXPECT_EQ(PutIfAbsent("commit/1", "second"), PutOutcome::kExists);
  EXPECT_EQ(Read("commit/1"), "first");
}

TEST_F(StoreTest, OfEightWritersOneWins) {
  constexpr int kWriters = 8;
  for (int round = 0; round < 25; ++round) {
    const std::string name = absl::StrCat("commit/", round);
    std::array<PutOutcome, kWriters> outcomes;
    OnThreads(kWriters, [&](int i) {
      outcomes[static_cast<std::size_t>(i)] =
          PutIfAbsent(name, absl::StrCat("writer ", i));
    });
    const auto winner = std::ranges::find(outcomes, PutOutcome::kCreated);
    ASSERT_EQ(std::ranges::count(outcomes, PutOutcome::kCreated), 1) << round;
    EXPECT_EQ(std::ranges::count(outcomes, PutOutcome::kExists), kWriters - 1);
    EXPECT_EQ(Read(name), absl::StrCat("writer ", winner - outcomes.begin()));
  }
}

TEST_F(StoreTest, AWriteIdSettlesWhoseItIs) {
  const std::string id = kv::NewWriteId(), other = kv::NewWriteId();
  for (int i = 0; i < 2; ++i) {  // The second time as if no answer had come.
    const auto answer = PutSettled(*store_, "commit/1", id, id, Soon());
    ASSERT_THAT(answer, testing::IsOk());
    EXPECT_EQ(answer->outcome, PutOutcome::kCreated) << i;
  }
  const auto answer = PutSettled(*store_, "commit/1", other, other, Soon());
  ASSERT_THAT(answer, testing::IsOk());
  EXPECT_EQ(answer->outcome, PutOutcome::kExists);
  EXPECT_EQ(Read("commit/1"), id);
}

TEST_F(StoreTest, IsProvenToCreateConditionally) {
  EXPECT_THAT(ProveConditionalPut(*store_, "", Soon()), testing::IsOk());
  EXPECT_THAT(ProveConditionalPut(*store_, "some/prefix", Soon()),
              testing::IsOk());
  EXPECT_THAT(List(""), IsEmpty());
}

TEST_F(StoreTest, ReadsRangesUpToTheEnd) {
  EXPECT_EQ(PutIfAbsent("a", "0123456789"), PutOutcome::kCreated);
  EXPECT_EQ(Read("a", 0, 10), "0123456789");
  EXPECT_EQ(Read("a", 3, 4), "3456");
  EXPECT_EQ(Read("a", 8, 100), "89");
  EXPECT_EQ(Read("a", 10, 5), "");
  EXPECT_EQ(Read("a", 1000, 5), "");
  EXPECT_EQ(Read("a", 0, 0), "");
  EXPECT_EQ(PutIfAbsent("empty", ""), PutOutcome::kCreated);
  EXPECT_EQ(Read("empty", 0, 5), "");
  EXPECT_EQ(Read("empty", 0, 0), "");
}

TEST_F(StoreTest, WhatIsAbsentIsSaidToBe) {
  EXPECT_FALSE(IsThere("some/object"));
  std::array<std::byte, 4> into;
  EXPECT_EQ(store_->GetRange("some/object", 0, into, Soon()).status().code(),
            absl::StatusCode::kNotFound);
  const std::vector<std::string> names = {"some/object"};
  EXPECT_THAT(store_->Delete(names, Soon()), testing::IsOk());
  EXPECT_THAT(List("some/"), IsEmpty());
}

TEST_F(StoreTest, SaysHowLargeItIsAndWhenItCame) {
  const std::string id = kv::NewWriteId();
  ASSERT_THAT(store_->PutIfAbsent("a/b", "12345", id, Soon()), testing::IsOk());
  const auto info = store_->Head("a/b", Soon());
  ASSERT_THAT(info, testing::IsOk());
  ASSERT_TRUE(info->has_value());
  EXPECT_EQ((*info)->name, "a/b");
  EXPECT_EQ((*info)->size, 5);
  EXPECT_GT((*info)->modified, absl::FromUnixSeconds(1'500'000'000));
  if (StoreKind() != "file") EXPECT_EQ((*info)->write_id, id);
}

TEST_F(StoreTest, PutReplaces) {
  Put("a", 1000, 1);
  Put("a", 500, 2);
  ExpectPattern("a", 0, 500, 2);
  EXPECT_EQ(Read("a", 500, 1), "");
}

TEST_F(StoreTest, ALargeOneComesBackAsItWas) {
  constexpr std::uint64_t kSize = 150 * kMiB + 12345;
  Put("segment/large", kSize);
  const auto info = store_->Head("segment/large", Soon());
  ASSERT_THAT(info, testing::IsOk());
  ASSERT_TRUE(info->has_value());
  EXPECT_EQ((*info)->size, kSize);
  ExpectPattern("segment/large", 0, kMiB);
  ExpectPattern("segment/large", 64 * kMiB - 10, 20);
  ExpectPattern("segment/large", 60 * kMiB, 80 * kMiB);
  ExpectPattern("segment/large", kSize - 5, 5);
  EXPECT_EQ(Read("segment/large", kSize - 5, 100).size(), 5);
  EXPECT_EQ(Read("segment/large", kSize, 100), "");
  EXPECT_THAT(List(""), ElementsAre("segment/large"));
  // A smaller one in its place, and none.
  Put("segment/large", 70 * kMiB, 3);
  ExpectPattern("segment/large", 63 * kMiB, 7 * kMiB, 3);
  EXPECT_EQ(Read("segment/large", 70 * kMiB, 100), "");
  const std::vector<std::string> names = {"segment/large"};
  EXPECT_THAT(store_->Delete(names, Soon()), testing::IsOk());
  EXPECT_FALSE(IsThere("segment/large"));
  const auto uploads = store_->ListUploads("", Soon());
  ASSERT_THAT(uploads, testing::IsOk());
  EXPECT_THAT(*uploads, IsEmpty());
}

TEST_F(StoreTest, ListsInOrderFromWhereItIsTold) {
  for (const char* name : {"b/2", "a", "b/10", "b/1", "c-", "b0"}) {
    ASSERT_EQ(PutIfAbsent(name, name), PutOutcome::kCreated);
  }
  EXPECT_THAT(List(""), ElementsAre("a", "b/1", "b/10", "b/2", "b0", "c-"));
  EXPECT_THAT(List("b"), ElementsAre("b/1", "b/10", "b/2", "b0"));
  EXPECT_THAT(List("b/1"), ElementsAre("b/1", "b/10"));
  EXPECT_THAT(List("b/", "b/1"), ElementsAre("b/10", "b/2"));
  EXPECT_THAT(List("b/", "b/2"), IsEmpty());
  EXPECT_THAT(List("d"), IsEmpty());
}

TEST_F(StoreTest, ListsManyInPages) {
  constexpr int kObjects = 1100, kThreads = 8;
  OnThreads(kThreads, [&](int thread) {
    for (int i = thread; i < kObjects; i += kThreads) {
      EXPECT_EQ(PutIfAbsent(absl::StrFormat("many/%06d", i), "x"),
                PutOutcome::kCreated);
    }
  });
  std::vector<std::string> all;
  int pages = 0;
  for (bool more = true; more; ++pages) {
    const auto page =
        store_->List("many/", all.empty() ? "" : all.back(), Soon());
    ASSERT_THAT(page, testing::IsOk());
    for (const kv::ObjectInfo& info : page->objects) {
      EXPECT_EQ(info.size, 1);
      all.push_back(info.name);
    }
    more = page->more;
  }
  ASSERT_EQ(all.size(), kObjects);
  EXPECT_GE(pages, 2);
  EXPECT_TRUE(std::ranges::is_sorted(all));
  EXPECT_EQ(std::ranges::adjacent_find(all), all.end());
  EXPECT_THAT(store_->Delete(all, Soon()), testing::IsOk());
  EXPECT_THAT(List(""), IsEmpty());
}

TEST_F(StoreTest, AnUnfinishedPutIsNoObjectAndCanBeCleared) {
  PatternSource source(150 * kMiB, 0);
  std::stop_source stop;
  std::vector<kv::Upload> during;
  int reads = 0;
  source.on_read = [&](std::uint64_t offset) -> absl::Status {
    // The last to be read: the end, or in a pool, which writes it last, the
    // beginning.
    const bool last =
        StoreKind() == "rados" ? offset == 0 : offset > 140 * kMiB;
    if (!last || ++reads > 1) return absl::OkStatus();
    auto uploads = store_->ListUploads("segment/", Soon());
    if (!uploads.ok()) return uploads.status();
    during = *uploads;
    EXPECT_FALSE(IsThere("segment/1"));
    EXPECT_THAT(List(""), IsEmpty());
    stop.request_stop();
    return absl::OkStatus();
  };
  const absl::Status put =
      store_->Put("segment/1", source, Soon(stop.get_token()));
  EXPECT_EQ(put.code(), absl::StatusCode::kCancelled) << put;
  ASSERT_EQ(during.size(), 1);
  EXPECT_EQ(during[0].name, "segment/1");
  EXPECT_FALSE(IsThere("segment/1"));
  const auto left = store_->ListUploads("", Soon());
  ASSERT_THAT(left, testing::IsOk());
  EXPECT_LE(left->size(), 1);
  EXPECT_THAT(store_->AbortUpload(during[0], Soon()), testing::IsOk());
  const auto after = store_->ListUploads("", Soon());
  ASSERT_THAT(after, testing::IsOk());
  EXPECT_THAT(*after, IsEmpty());
  EXPECT_THAT(store_->AbortUpload(during[0], Soon()), testing::IsOk());
}

TEST_F(StoreTest, ASourceThatFailsLeavesNothing) {
  PatternSource source(100 * kMiB, 0);
  source.on_read = [&](std::uint64_t offset) {
    return offset > 60 * kMiB || StoreKind() == "rados"
               ? absl::DataLossError("the source is bad")
               : absl::OkStatus();
  };
  EXPECT_EQ(store_->Put("a", source, Soon()),
            absl::DataLossError("the source is bad"));
  EXPECT_FALSE(IsThere("a"));
  const auto uploads = store_->ListUploads("", Soon());
  ASSERT_THAT(uploads, testing::IsOk());
  EXPECT_THAT(*uploads, IsEmpty());
}

TEST_F(StoreTest, ACallEndsWhenItIsToldTo) {
  std::stop_source stop;
  stop.request_stop();
  const kv::Call over = kv::Call::Within(absl::ZeroDuration());
  const kv::Call cancelled = Soon(stop.get_token());
  EXPECT_EQ(store_->Head("a", over).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(store_->Head("a", cancelled).status().code(),
            absl::StatusCode::kCancelled);
  EXPECT_EQ(store_->List("a", "", over).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(store_->Put("a", PatternSource(10, 0), cancelled).code(),
            absl::StatusCode::kCancelled);
  EXPECT_FALSE(IsThere("a"));
}

TEST_F(StoreTest, RefusesNamesThatAreNone) {
  for (const std::string name :
       {"", "/a", "a/", "a//b", ".", "a/../b", ".uploads/a", "a b", "a:b",
        "a%b", "a\n", "\xc3\xa4"}) {
    EXPECT_EQ(store_->Head(name, Soon()).status().code(),
              absl::StatusCode::kInvalidArgument)
        << name;
    EXPECT_EQ(store_->PutIfAbsent(name, "x", kv::NewWriteId(), Soon())
                  .status()
                  .code(),
              absl::StatusCode::kInvalidArgument)
        << name;
  }
  EXPECT_EQ(store_->PutIfAbsent("a", "x", "no id", Soon()).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store_->List("../", "", Soon()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(StoreTest, AForkedChildIsToldThatItIsDead) {
  if (StoreKind() == "file") return;  // It has nothing to lose by a fork.
  ASSERT_FALSE(IsThere("a"));
  const pid_t child = fork();
  if (child == 0) {
    const auto answer = store_->Head("a", Soon());
    _exit(answer.status().code() == absl::StatusCode::kFailedPrecondition ? 0
                                                                          : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(IsThere("a"));
}

}  // namespace
}  // namespace ckptree
