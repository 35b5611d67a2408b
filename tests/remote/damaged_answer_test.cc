// SPDX-License-Identifier: Apache-2.0

// One flipped bit in one answer: what is there is whole, and nobody is told to
// delete it. It is read once more, and the log has a word of it.

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"
#include "tests/objects/counting_store.h"
#include "tests/remote/fixture.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::size_t kSave = 100;

class DamagedAnswerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Store writer = Store::Open(Disk("a"), Remote()).value();
    for (int step = 1; step <= 5; ++step) SaveStep(writer, step, kSave);
    ASSERT_OK(writer.WaitReplicated(kLong));
    ASSERT_OK(writer.Close());
  }
  void TearDown() override { count_.SetReadHook(nullptr); }
  std::string Address() { return absl::StrCat("file://", dir_.path()); }
  std::string Disk(const std::string& name) { return disks_ / name; }
  StoreOptions Logged(StoreOptions options) {
    options.log = [this](LogSeverity, std::string_view, std::string_view text) {
      const std::scoped_lock lock(mu_);
      absl::StrAppend(&log_, std::string(text), "\n");
    };
    return options;
  }
  StoreOptions Remote() { return Logged(RemoteOptions(Address())); }
  // A machine that has nothing of it yet.
  absl::Status OpenByAddress() {
    const std::string cache = Disk(absl::StrCat("cache", ++caches_));
    setenv("XDG_CACHE_HOME", cache.c_str(), 1);
    StoreOptions reading = Logged(QuietOptions());
    reading.create_if_missing = false;
    reading.read_only = true;
    absl::StatusOr<Store> reader = Store::Open(Address(), reading);
    if (!reader.ok()) return reader.status();
    for (int step = 1; step <= 5; ++step) ExpectStep(*reader, step, kSave);
    return absl::OkStatus();
  }
  absl::Status OpenDirectory() {
    absl::StatusOr<Store> store = Store::Open(Disk("a"), Remote());
    return store.ok() ? store->Close() : store.status();
  }
  // In each answer of that object, or in the first of them.
  void Damage(const std::string& object, bool each) {
    count_.SetReadHook([this, object, each](const std::string& name,
                                            std::span<std::byte> bytes) {
      const std::scoped_lock lock(mu_);
      if (name != object || bytes.empty() || (damaged_ > 0 && !each)) return;
      bytes[bytes.size() / 2] ^= std::byte{4};
      ++damaged_;
    });
    const std::scoped_lock lock(mu_);
    damaged_ = 0;
    log_.clear();
  }
  // What `open` reads of the name of the store and of the commits.
  template <typename Open>
  std::set<std::string> Reads(Open open) {
    std::mutex mu;
    std::set<std::string> names;
    count_.SetReadHook([&](const std::string& name, std::span<std::byte>) {
      const std::scoped_lock lock(mu);
      if (name == "store" || name.find("/commit/") != name.npos) {
        names.insert(name);
      }
    });
    EXPECT_OK(open());
    count_.SetReadHook(nullptr);
    return names;
  }
  template <typename Open>
  void ExpectMended(Open open) {
    const std::set<std::string> names = Reads(open);
    EXPECT_GE(names.size(), 2U);
    for (const std::string& name : names) {
      Damage(name, /*each=*/false);
      EXPECT_OK(open()) << name;
      const std::scoped_lock lock(mu_);
      // What an open of before had read need not be read now.
      if (damaged_ == 0) continue;
      ++mended_;
      EXPECT_THAT(log_, AllOf(HasSubstr("damaged on its way"), HasSubstr(name)))
          << name;
    }
  }

  TempDir dir_;
  TempDir disks_;
  RequestCount count_;
  std::mutex mu_;
  std::string log_;
  int damaged_ = 0;
  int mended_ = 0;
  int caches_ = 0;
};

TEST_F(DamagedAnswerTest, IsReadOnceMore) {
  ExpectMended([this] { return OpenByAddress(); });
  ExpectMended([this] { return OpenDirectory(); });
  EXPECT_GE(mended_, 4);
}

TEST_F(DamagedAnswerTest, WhatIsDamagedEachTimeIsToldWithAdvice) {
  Damage("store", /*each=*/true);
  EXPECT_THAT(OpenByAddress(),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("where there is none delete it")));
  // Those that an open reads of a directory that has shipped them.
  int told = 0;
  for (const std::string& name : Reads([this] { return OpenDirectory(); })) {
    if (name == "store") continue;
    Damage(name, /*each=*/true);
    const absl::Status refused = OpenDirectory();
    if (refused.ok()) continue;  // It is read no more, or not needed.
    ++told;
    EXPECT_THAT(refused, StatusIs(absl::StatusCode::kDataLoss,
                                  AllOf(HasSubstr(name),
                                        HasSubstr("Put it back from a copy"))));
  }
  EXPECT_GT(told, 0);
}

TEST_F(DamagedAnswerTest, APageInThePlaceOfTheNameIsShown) {
  constexpr std::string_view kPage = "<!doctype html><p>Log in first, please.";
  int answered = 0;
  count_.SetReadHook([&](const std::string& name, std::span<std::byte> bytes) {
    if (name != "store") return;
    const std::size_t most = std::min(kPage.size(), bytes.size());
    std::memcpy(bytes.data(), kPage.data(), most);
    ++answered;
  });
  EXPECT_THAT(OpenByAddress(),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("\"<!doctype html><p>Log in\""),
                             HasSubstr("a login page"))));
  EXPECT_EQ(answered, 2);
}

}  // namespace
}  // namespace ckptree::testing
