// SPDX-License-Identifier: Apache-2.0

// Ranks that share no folder and meet in their remote, each in a thread, with a
// directory of its own.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <latch>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "ckptree/ckptree.h"
#include "ckptree/ranks.h"
#include "core/ranks/rank_remote.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/object_store.h"
#include "schema/rank_message.h"
#include "tests/core/fixture.h"
#include "tests/objects/counting_store.h"
#include "tests/ranks/fixture.h"
#include "tests/remote/fixture.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;

using internal::MailSink;
using internal::MailSource;
using internal::MailWriter;
using internal::RankRemote;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Of a rank's rows in a step: enough for a segment.
constexpr std::size_t kLarge = std::size_t{1200} << 10;

class RankDirectoriesTest : public RanksTest {
 protected:
  void SetUp() override {
    setenv("XDG_CACHE_HOME", std::string(dir_ / "cache").c_str(), 1);
    fs::create_directories(bucket());
  }

  std::string bucket() const { return dir_ / "bucket"; }
  std::string address() const { return "file://" + bucket(); }
  std::string disk(int rank) const { return dir_ / absl::StrCat("disk", rank); }
  RankOptions FarOptions(int rank, int world) const {
    RankOptions options = Options(rank, world);
    options.job = absl::StrCat("test-", life_.load());
    options.shared_folder = false;
    options.store.create_if_missing = true;
    options.store.remote = address();
    options.store.durable = Durable::kRemote;
    options.store.chunk_bytes = kChunk;
    return options;
  }
  absl::StatusOr<RankGroup> OpenFar(int rank, int world) const {
    return RankGroup::Open(disk(rank), FarOptions(rank, world));
  }
  // Of a job of its own.
  void InFarGroup(int world,
                  const std::function<void(RankGroup& group)>& body) {
    ++life_;
    OnAll(world, [&](int rank) {
      absl::StatusOr<RankGroup> group = OpenFar(rank, world);
      ASSERT_OK(group);
      body(*group);
      EXPECT_OK(group->Close());
    });
  }
  // As SaveAll(), and "large", of new content.
  static absl::Status SaveLarge(RankGroup& group, std::int64_t step) {
    const Bytes rows = RowsOf(group.rank(), step);
    const Bytes large = LargeOf(group.rank(), step);
    StepBuilder builder = group.Begin(step);
    PutAll(&builder, group.rank(), group.world(), step, rows);
    const auto size = static_cast<std::int64_t>(large.size());
    Tensor tensor = Uint8s(large);
    tensor.start = {size * group.rank()};
    tensor.global_shape = {size * group.world()};
    builder.Put("large", tensor);
    return std::move(builder).Commit().WaitCommitted(kLong);
  }
  static Bytes LargeOf(int rank, std::int64_t step) {
    return RandomBytes(kLarge, 7777 + rank + 1000 * step);
  }
  static void ExpectLarge(const Store& store, std::int64_t step, int world) {
    const absl::StatusOr<Step> read = store.OpenStep(step);
    ASSERT_OK(read);
    Bytes wanted;
    for (int rank = 0; rank < world; ++rank) {
      const Bytes large = LargeOf(rank, step);
      wanted.insert(wanted.end(), large.begin(), large.end());
    }
    Bytes found(wanted.size());
    ASSERT_OK(read->Read("large", std::span(found)));
    EXPECT_TRUE(found == wanted) << "step " << step;
    Bytes rows(static_cast<std::size_t>(kRows * kColumns * 4 * world));
    ASSERT_OK(read->Read("w", std::span(rows)));
    EXPECT_TRUE(rows == AllRows(world, step)) << "step " << step;
  }
  // Read by the address, and where rank 0 has it.
  void ExpectEverywhere(
      const std::vector<std::pair<std::int64_t, int>>& steps) {
    for (const std::string& where : {address(), disk(0)}) {
      const absl::StatusOr<Store> store =
          Store::Open(where, ToRead(QuietOptions()));
      ASSERT_OK(store);
      EXPECT_EQ(store->Steps().value().size(), steps.size()) << where;
      for (const auto& [step, world] : steps) ExpectLarge(*store, step, world);
      const auto report = store->Verify({.level = VerifyOptions::Level::kDeep});
      ASSERT_OK(report);
      for (const Finding& finding : report->findings) {
        ADD_FAILURE() << where << ": " << finding.what;
      }
    }
  }
  // Names of segments' objects, without what is of one try.
  std::vector<std::string> Segments() const {
    std::vector<std::string> names;
    for (const fs::path& path : ObjectsOf(bucket(), "segment")) {
      const std::string name = path.filename();
      names.push_back(name.substr(0, name.rfind('-')));
    }
    return names;
  }

  std::atomic<int> life_ = 0;
};

TEST_F(RankDirectoriesTest, AllSaveAndReadWhatIsInTheRemote) {
  constexpr int kWorld = 3;
  InFarGroup(kWorld, [&](RankGroup& group) {
    for (std::int64_t step = 1; step <= 3; ++step) {
      ASSERT_OK(SaveLarge(group, step));
      // At once, on every rank, what the others had, too.
      ExpectLarge(group.store(), step, kWorld);
    }
    EXPECT_EQ(fs::exists(disk(group.rank())), group.rank() == 0);
  });
  ExpectEverywhere({{1, kWorld}, {2, kWorld}, {3, kWorld}});
  for (int rank = 0; rank < kWorld; ++rank) {
    EXPECT_FALSE(fs::exists(disk(rank) + "-parts")) << rank;
  }
  // Each was uploaded once, by the rank that built it: rank 0 has fetched it,
  // and ships what is there.
  const std::vector<std::string> segments = Segments();
  EXPECT_EQ(std::set<std::string>(segments.begin(), segments.end()).size(),
            segments.size());
  EXPECT_GE(segments.size(), 9U);
}

TEST_F(RankDirectoriesTest, AnotherNumberOfRanksGoesOn) {
  InFarGroup(3, [](RankGroup& group) { ASSERT_OK(SaveLarge(group, 1)); });
  InFarGroup(2, [](RankGroup& group) {
    ExpectLarge(group.store(), 1, 3);
    ASSERT_OK(SaveLarge(group, 2));
  });
  // The disk of rank 0 is lost.
  fs::remove_all(disk(0));
  InFarGroup(4, [](RankGroup& group) {
    ExpectLarge(group.store(), 2, 2);
    ASSERT_OK(SaveLarge(group, 3));
  });
  InFarGroup(1, [](RankGroup& group) { ASSERT_OK(SaveLarge(group, 4)); });
  ExpectEverywhere({{1, 3}, {2, 2}, {3, 4}, {4, 1}});
}

// What did not change is not written, not uploaded and not fetched again.
TEST_F(RankDirectoriesTest, WhatIsThereIsNotSentAgain) {
  std::size_t before = 0;
  InFarGroup(2, [&](RankGroup& group) {
    const Bytes large = LargeOf(group.rank(), 1);
    const auto save = [&](std::int64_t step) {
      StepBuilder builder = group.Begin(step);
      Tensor tensor = Uint8s(large);
      const auto size = static_cast<std::int64_t>(large.size());
      tensor.start = {size * group.rank()};
      tensor.global_shape = {size * 2};
      builder.Put("large", tensor).PutInt("count", step);
      return std::move(builder).Commit().WaitCommitted(kLong);
    };
    ASSERT_OK(save(1));
    if (group.rank() == 0) before = Segments().size();
    ASSERT_OK(save(2));
    ASSERT_OK(save(3));
  });
  EXPECT_GT(before, 0U);
  EXPECT_EQ(Segments().size(), before);
}

// A handoff that is too large for a message is an object.
TEST_F(RankDirectoriesTest, ManyLeaves) {
  constexpr int kLeaves = 3000;
  std::mutex mu;
  std::set<std::string> parts;
  RequestCount count;
  count.SetHook([&](const std::string& what) {
    if (absl::StartsWith(what, "put ") && absl::StrContains(what, "/part/")) {
      const std::scoped_lock lock(mu);
      parts.insert(what);
    }
    return absl::OkStatus();
  });
  InFarGroup(2, [&](RankGroup& group) {
    StepBuilder builder = group.Begin(1);
    builder.SetPerRank("own");
    for (int i = 0; i < kLeaves; ++i) {
      builder.PutInt(absl::StrCat("own/", group.rank(), "/", i), i);
    }
    ASSERT_OK(std::move(builder).Commit().WaitCommitted(kLong));
    const absl::StatusOr<Step> read = group.store().OpenStep(1);
    ASSERT_OK(read);
    EXPECT_EQ(read->Leaves()->size(), 2U * kLeaves);
  });
  EXPECT_EQ(parts.size(), 1U);
}

TEST_F(RankDirectoriesTest, AStepThatFailsFailsOnAllAndTheNextDoesNot) {
  InFarGroup(3, [&](RankGroup& group) {
    ASSERT_OK(SaveLarge(group, 1));
    // Two of them have the same rows.
    const Bytes large = LargeOf(group.rank(), 2);
    const auto size = static_cast<std::int64_t>(large.size());
    StepBuilder builder = group.Begin(2);
    Tensor tensor = Uint8s(large);
    tensor.start = {size * std::min(group.rank(), 1)};
    tensor.global_shape = {size * 2};
    builder.Put("large", tensor);
    EXPECT_THAT(std::move(builder).Commit().WaitCommitted(kLong),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("step 2 was not saved")));
    ASSERT_OK(SaveLarge(group, 3));
  });
  ExpectEverywhere({{1, 3}, {3, 3}});
}

// One of them is started again alone, and meets the others at their next step.
TEST_F(RankDirectoriesTest, ARankThatIsStartedAgain) {
  life_ = 1;
  std::latch again(1);  // Who waits for one that has closed would be told so.
  OnAll(3, [&](int rank) {
    absl::StatusOr<RankGroup> group = OpenFar(rank, 3);
    ASSERT_OK(group);
    ASSERT_OK(SaveLarge(*group, 1));
    if (rank == 1) {
      ASSERT_OK(group->Close());
      group = OpenFar(rank, 3);
      again.count_down();
      ASSERT_OK(group);
      ExpectLarge(group->store(), 1, 3);
    }
    again.wait();
    ASSERT_OK(SaveLarge(*group, 2));
    ASSERT_OK(group->Close());
  });
  ExpectEverywhere({{1, 3}, {2, 3}});
}

// What ranks of a run before said, and what they uploaded late, counts for
// nothing, and goes once another one has shipped.
TEST_F(RankDirectoriesTest, WhatIsLeftOfARunBeforeGoes) {
  constexpr std::int64_t kLast = 12;
  InFarGroup(2, [](RankGroup& group) { ASSERT_OK(SaveLarge(group, 1)); });
  const auto attempts = [this] { return ObjectsOf(bucket(), "attempt"); };
  // And of a rank 0 that was refused the store.
  const std::string uuid =
      fs::relative(attempts().front(), bucket()).begin()->string();
  const std::string refused =
      absl::StrCat(bucket(), "/", uuid, RankRemote::RefusalName("", "another"));
  fs::create_directories(fs::path(refused).parent_path());
  fs::copy(attempts().front(), refused);
  const std::vector<fs::path> before = attempts();
  EXPECT_FALSE(before.empty());
  // As of a rank that was stopped, and sends its part once all is over.
  const fs::path segment = ObjectsOf(bucket(), "segment").front();
  const std::string name = segment.filename();
  const std::string late =
      absl::StrCat(name.substr(0, name.rfind('-')), "-", std::string(32, 'a'));
  fs::create_directories(segment.parent_path().parent_path() / "aa");
  fs::copy(segment, segment.parent_path().parent_path() / "aa" / late);
  ++life_;
  OnAll(2, [&](int rank) {
    RankOptions options = FarOptions(rank, 2);
    options.store.remote_grace = absl::ZeroDuration();
    absl::StatusOr<RankGroup> group = RankGroup::Open(disk(rank), options);
    ASSERT_OK(group);
    // An index lists it, a later commit makes it due.
    for (std::int64_t step = 2; step <= kLast; ++step) {
      ASSERT_OK(SaveLarge(*group, step));
    }
    ASSERT_OK(group->Close());
  });
  for (const fs::path& path : before) EXPECT_FALSE(fs::exists(path)) << path;
  EXPECT_FALSE(fs::exists(segment.parent_path().parent_path() / "aa" / late));
  std::vector<std::pair<std::int64_t, int>> steps;
  for (std::int64_t step = 1; step <= kLast; ++step)
    steps.emplace_back(step, 2);
  ExpectEverywhere(steps);
}

// A rank that starts before rank 0 finds what a run before had left, and rank 0
// may remove that under it.
TEST_F(RankDirectoriesTest, WhatIsFoundTooEarlyIsLeft) {
  InFarGroup(2, [](RankGroup& group) { ASSERT_OK(SaveLarge(group, 1)); });
  const fs::path sign = ObjectsOf(bucket(), "open-test-1").front();
  const fs::path early = sign.parent_path().parent_path() / "open-test-2";
  fs::create_directory(early);
  // Nothing but that it was there.
  fs::copy(sign, early / sign.filename());
  std::latch looked(1);
  std::atomic<bool> once = false;
  RequestCount count;
  count.SetHook([&](const std::string& what) {
    if (absl::StrContains(what, "job-test-2/" + sign.filename().string()) &&
        !once.exchange(true)) {
      looked.count_down();
    }
    return absl::OkStatus();
  });
  ++life_;
  OnAll(2, [&](int rank) {
    if (rank == 0) looked.wait();
    absl::StatusOr<RankGroup> group = OpenFar(rank, 2);
    ASSERT_OK(group);
    ASSERT_OK(SaveLarge(*group, 2));
    ASSERT_OK(group->Close());
  });
  ExpectEverywhere({{1, 2}, {2, 2}});
}

TEST_F(RankDirectoriesTest, WhatCannotBeIsRefused) {
  RankOptions options = FarOptions(0, 2);
  options.store.durable = Durable::kLocal;
  EXPECT_THAT(RankGroup::Open(disk(0), options).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("set store.durable to kRemote")));
  options.store.durable = Durable::kRemote;
  options.store.remote.clear();
  EXPECT_THAT(RankGroup::Open(disk(0), options).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("set store.remote")));
  EXPECT_FALSE(fs::exists(disk(0)));
}

// Nobody is there, or some are not.
TEST_F(RankDirectoriesTest, WhoDoesNotComeIsNamed) {
  life_ = 1;
  const auto hurried = [this](int rank) {
    RankOptions options = FarOptions(rank, 3);
    options.open_deadline = absl::Milliseconds(300);
    return options;
  };
  EXPECT_THAT(
      RankGroup::Open(disk(1), hurried(1)).status(),
      StatusIs(absl::StatusCode::kDeadlineExceeded,
               AllOf(HasSubstr("saw no coordinator of job test-1"),
                     HasSubstr(address()), HasSubstr("see its own error"))));
  EXPECT_THAT(RankGroup::Open(disk(0), hurried(0)).status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("of 3 ranks 2 did not come")));
  // Of the one that gave up nothing is waited for.
  EXPECT_THAT(RankGroup::Open(disk(1), hurried(1)).status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("saw no coordinator of job test-1")));
}

// Rank 0 that is refused what is there says so there.
TEST_F(RankDirectoriesTest, TheOthersHearWhyRank0IsRefused) {
  StoreOptions alone = QuietOptions();
  alone.create_if_missing = true;
  alone.remote = address();
  absl::StatusOr<Store> alive = Store::Open(dir_ / "alone", alone);
  ASSERT_OK(alive);
  ++life_;
  OnAll(2, [&](int rank) {
    EXPECT_THAT(
        OpenFar(rank, 2).status(),
        StatusIs(absl::StatusCode::kFailedPrecondition,
                 AllOf(HasSubstr("may still be training"),
                       HasSubstr(rank == 0 ? "pid " : "rank 0 (pid "))));
  });
  ASSERT_OK(alive->Close());
  // The same job tries again, and then it is the next one's era.
  OnAll(2, [&](int rank) {
    absl::StatusOr<RankGroup> group = OpenFar(rank, 2);
    ASSERT_OK(group);
    ASSERT_OK(SaveLarge(*group, 1));
    EXPECT_OK(group->Close());
  });
  ExpectEverywhere({{1, 2}});
}

// A part by the caller's messages is handed over in the folder.
TEST_F(RankDirectoriesTest, APartOfAStoreReadByItsAddressIsRefused) {
  InFarGroup(2, [](RankGroup& group) { ASSERT_OK(SaveLarge(group, 1)); });
  absl::StatusOr<Store> writer = Store::Open(disk(0), QuietOptions());
  ASSERT_OK(writer);
  absl::StatusOr<RankedSave> save =
      RankedSave::Begin(writer->Begin(2), {.world = 1});
  ASSERT_OK(save);
  const absl::StatusOr<Store> reader =
      Store::Open(address(), ToRead(QuietOptions()));
  ASSERT_OK(reader);
  EXPECT_THAT(FinishPart(BeginPart(*reader, save->plan(), 0)).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("is read by its address")));
}

// ---- mailboxes ----

schema::RankMail Mail(std::int64_t step) {
  schema::RankMail mail;
  mail.kind = schema::MailKind::kBegun;
  mail.step = step;
  return mail;
}

class RankMailTest : public RankDirectoriesTest {
 protected:
  std::shared_ptr<RankRemote> Remote(std::uint64_t era) const {
    auto store =
        kv::OpenObjectStore(address(), {}, kv::Call::Within(absl::Seconds(10)));
    EXPECT_OK(store);
    return std::make_shared<RankRemote>(*std::move(store), std::string(16, 'u'),
                                        "job", era);
  }
  static std::vector<std::int64_t> Read(MailSource& source) {
    std::vector<std::int64_t> steps;
    const auto mails = source.Poll();
    EXPECT_OK(mails);
    for (const schema::RankMail& mail : *mails) steps.push_back(mail.step);
    return steps;
  }
  static std::vector<std::int64_t> UpTo(std::int64_t last) {
    std::vector<std::int64_t> steps;
    for (std::int64_t step = 1; step <= last; ++step) steps.push_back(step);
    return steps;
  }
};

// Requests fail, some before and some after they arrived: each record is read
// once, in its order, whoever reads, and when.
TEST_F(RankMailTest, RecordsComeInTheirOrder) {
  RequestCount count;
  std::atomic<int> puts = 0;
  count.SetHook([&](const std::string& what) {
    return absl::StartsWith(what, "put ") && ++puts % 3 == 0
               ? absl::UnavailableError("no answer")
               : absl::OkStatus();
  });
  const std::shared_ptr<RankRemote> remote = Remote(7);
  MailWriter writer(remote->Write("rank-1-0000000000000001"), absl::Hours(1));
  const auto beside = remote->Read("rank-1-0000000000000001");
  std::vector<std::int64_t> read;
  int failed = 0;
  for (const std::int64_t step : UpTo(40)) {
    failed += writer.PostOrKeep(Mail(step)).ok() ? 0 : 1;
    if (step % 3 != 0) continue;
    for (const std::int64_t got : Read(*beside)) read.push_back(got);
  }
  count.SetHook(nullptr);
  EXPECT_GT(failed, 5);
  ASSERT_OK(writer.PostOrKeep(Mail(41)));
  for (const std::int64_t got : Read(*beside)) read.push_back(got);
  EXPECT_EQ(read, UpTo(41));
  // Who comes later reads the same.
  EXPECT_EQ(Read(*remote->Read("rank-1-0000000000000001")), UpTo(41));
  EXPECT_THAT(*remote->List(),
              ::testing::ElementsAre("rank-1-0000000000000001"));
}

TEST_F(RankMailTest, WhatWasReadGoesAndTheRestStays) {
  const std::shared_ptr<RankRemote> remote = Remote(7);
  MailWriter writer(remote->Write("rank-1-0000000000000001"), absl::Hours(1));
  const auto reader = remote->Read("rank-1-0000000000000001");
  for (const std::int64_t step : UpTo(10)) ASSERT_OK(writer.Post(Mail(step)));
  EXPECT_EQ(Read(*reader), UpTo(10));
  writer.Forget(8);
  ASSERT_OK(writer.Post(Mail(11)));
  EXPECT_EQ(Read(*reader), std::vector<std::int64_t>{11});
  // The first, 9 to 11.
  EXPECT_EQ(ObjectsOf(bucket(), "box").size(), 4U);
}

// A coordinator that was started again has a place of its own.
TEST_F(RankMailTest, ANewerCoordinatorIsSeen) {
  const std::shared_ptr<RankRemote> before = Remote(9);
  const auto newest = [&] {
    return RankRemote::NewestEra(before->store(), before->uuid(), "job");
  };
  EXPECT_EQ(*newest(), std::nullopt);
  MailWriter first(before->Write(internal::kCoordinatorBox), absl::Hours(1));
  ASSERT_OK(first.Post(Mail(1)));
  EXPECT_EQ(*newest(), 9U);
  const auto reader = before->Read(internal::kCoordinatorBox);
  EXPECT_EQ(Read(*reader), UpTo(1));
  EXPECT_TRUE(reader->StillThere());
  const std::shared_ptr<RankRemote> after = Remote(10);
  MailWriter second(after->Write(internal::kCoordinatorBox), absl::Hours(1));
  ASSERT_OK(second.Post(Mail(2)));
  EXPECT_EQ(*newest(), 10U);
  EXPECT_FALSE(reader->StillThere());
  EXPECT_EQ(Read(*reader), std::vector<std::int64_t>{});
}

}  // namespace
}  // namespace ckptree::testing
