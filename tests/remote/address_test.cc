// SPDX-License-Identifier: Apache-2.0

// What a store shows that is read by its address: of the objects that are
// there, whatever the cache has.

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "ckptree/ckptree.h"
#include "core/remote/address_cache.h"
#include "core/remote/attended_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/options.h"
#include "tests/core/fixture.h"
#include "tests/objects/counting_store.h"
#include "tests/remote/fixture.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class AddressTest : public ::testing::Test {
 protected:
  void SetUp() override { UseCache("cache"); }
  void UseCache(const std::string& name) {
    setenv("XDG_CACHE_HOME", Disk(name).c_str(), 1);
  }
  std::string Folder(const std::string& name) { return dir_ / name; }
  std::string Address(const std::string& name) {
    return absl::StrCat("file://", Folder(name));
  }
  std::string Disk(const std::string& name) { return disks_ / name; }
  Store Write(const std::string& disk, const std::string& name) {
    return Store::Open(Disk(disk), RemoteOptions(Address(name))).value();
  }
  absl::StatusOr<Store> TryRead(const std::string& name) {
    StoreOptions options = QuietOptions();
    options.create_if_missing = false;
    options.read_only = true;
    return Store::Open(Address(name), options);
  }
  Store Read(const std::string& name) { return TryRead(name).value(); }

  TempDir dir_;
  TempDir disks_;
};

// A segment's worth, whose content is of `seed`, and a counter.
constexpr std::size_t kBytes = 3 << 20;
void SaveOf(Store& store, std::int64_t step, int seed) {
  const Bytes bytes = RandomBytes(kBytes, seed);
  StepBuilder builder = store.Begin(step);
  builder.Put("params/w", Uint8s(bytes)).PutInt("seed", seed);
  const absl::Status saved = builder.Commit().WaitCommitted(kLong);
  ASSERT_TRUE(saved.ok()) << saved;
  const absl::Status there = store.WaitReplicated(kLong);
  ASSERT_TRUE(there.ok()) << there;
}
void ExpectSeed(Store& store, std::int64_t step, int seed) {
  const absl::StatusOr<Step> read = store.OpenStep(step);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->Read<std::int64_t>("seed").value(), seed);
  Bytes bytes(kBytes);
  const absl::Status got = read->Read("params/w", std::span(bytes));
  ASSERT_TRUE(got.ok()) << got;
  EXPECT_EQ(bytes, RandomBytes(kBytes, seed));
}
void CopyFolder(const std::string& from, const std::string& to) {
  fs::remove_all(to);
  fs::copy(from, to, fs::copy_options::recursive);
}
void Flip(const fs::path& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(fs::file_size(path) / 2));
  const int byte = file.peek();
  file.seekp(static_cast<std::streamoff>(fs::file_size(path) / 2));
  file.put(static_cast<char>(byte ^ 1));
  ASSERT_TRUE(file.good());
}

// The objects of a store are copied, and both go on.
TEST_F(AddressTest, ACacheThatCannotBeMadeIsNoAbsentStore) {
  {
    Store store = Write("a", "far");
    ASSERT_OK(store.WaitReplicated(absl::Minutes(1)));
    ASSERT_OK(store.Close());
  }
  std::ofstream(Disk("file")) << "no folder";
  UseCache("file");
  const absl::Status status = TryRead("far").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(Disk("file")), HasSubstr("XDG_CACHE_HOME")));
}

// What is wrong with what this machine keeps is no damage of the store.
TEST_F(AddressTest, VerifyTellsACacheFromTheStore) {
  {
    Store store = Write("a", "far");
    SaveOf(store, 1, 1);
    ASSERT_OK(store.Close());
  }
  ASSERT_OK(Read("far").Close());
  int hurt = 0;
  for (const auto& entry : fs::recursive_directory_iterator(Disk("cache"))) {
    if (entry.path().filename() != "tip") continue;
    fs::remove(entry.path());
    ++hurt;
  }
  ASSERT_EQ(hurt, 1);
  Store reader = Read("far");
  ASSERT_OK_AND_ASSIGN(const VerifyReport report,
                       reader.Verify({.level = VerifyOptions::Level::kDeep}));
  ASSERT_EQ(report.findings.size(), 1u);
  EXPECT_EQ(report.findings[0].severity, Finding::Severity::kWarning);
  EXPECT_THAT(report.findings[0].what,
              AllOf(HasSubstr(Disk("cache")), HasSubstr("fetched again")));
  ExpectSeed(reader, 1, 1);
}

TEST_F(AddressTest, TwoStoresOfOneUuidAreTwo) {
  {
    Store one = Write("one", "one");
    SaveOf(one, 1, 1);
    ASSERT_TRUE(one.Close().ok());
  }
  CopyFolder(Folder("one"), Folder("two"));
  Store reads_one = Read("one");
  Store reads_two = Read("two");
  // Of another length each time, with readers of before and new ones.
  for (int turn = 1; turn <= 3; ++turn) {
    {
      Store one = Write("one", "one");
      SaveOf(one, turn + 1, 10 * turn);
      ASSERT_TRUE(one.Close().ok());
      Store two = Write("two", "two");
      SaveOf(two, turn + 1, -10 * turn);
      if (turn == 2) SaveOf(two, 100, -100);
      ASSERT_TRUE(two.Close().ok());
    }
    for (int look = 0; look < 2; ++look) {
      Store one = Read("one");
      ExpectSeed(one, turn + 1, 10 * turn);
      Store two = Read("two");
      ExpectSeed(two, turn + 1, -10 * turn);
      EXPECT_EQ(StepsOf(one).size(), turn + 1);
      EXPECT_EQ(StepsOf(two).size(), turn + (turn < 2 ? 1 : 2));
      ASSERT_TRUE(reads_two.Refresh().ok());
      ASSERT_TRUE(reads_one.Refresh().ok());
      ExpectSeed(reads_one, turn + 1, 10 * turn);
      ExpectSeed(reads_two, turn + 1, -10 * turn);
      EXPECT_EQ(StepsOf(reads_one), StepsOf(one));
      EXPECT_EQ(StepsOf(reads_two), StepsOf(two));
    }
  }
}

// What stands at an address is put back to what it was, and goes on from there:
// no ordinal and no name says that.
TEST_F(AddressTest, AStoreThatWasPutBackIsNotWhatItWas) {
  const auto save = [&](const std::string& disk, std::int64_t step, int seed) {
    Store store = Write(disk, "it");
    SaveOf(store, step, seed);
    ASSERT_TRUE(store.Close().ok());
  };
  save("a", 1, 1);
  CopyFolder(Folder("it"), Folder("kept"));
  CopyFolder(Disk("a"), Disk("b"));
  Store before = Read("it");
  save("a", 2, 20);
  ASSERT_TRUE(before.Refresh().ok());
  ExpectSeed(before, 2, 20);
  CopyFolder(Folder("kept"), Folder("it"));
  {
    // Nothing is behind it.
    Store back = Read("it");
    EXPECT_THAT(StepsOf(back), ::testing::ElementsAre(1));
    ExpectSeed(back, 1, 1);
    ASSERT_TRUE(back.Refresh().ok());
    EXPECT_THAT(StepsOf(back), ::testing::ElementsAre(1));
  }
  fs::remove_all(Disk("c"));
  save("c", 2, -20);
  Store after = Read("it");
  ExpectSeed(after, 2, -20);
  // Who read what is gone is told as soon as there is more, and shows nothing
  // of both.
  save("c", 3, -30);
  const absl::Status refreshed = before.Refresh();
  EXPECT_TRUE(absl::IsDataLoss(refreshed)) << refreshed;
  EXPECT_THAT(std::string(refreshed.message()), HasSubstr("Open it again"));
  EXPECT_THAT(StepsOf(before), ::testing::ElementsAre(1, 2));
  ASSERT_TRUE(after.Refresh().ok());
  ExpectSeed(after, 3, -30);
}

// Objects that were removed, or put back, add nothing: who read more is told
// within a minute, though nobody saves there again.
TEST_F(AddressTest, WhoReadWhatIsGoneIsToldThoughNothingFollows) {
  Store store = Write("a", "it");
  SaveStep(store, 1, 100);
  ASSERT_TRUE(store.WaitReplicated(kLong).ok());
  CopyFolder(Folder("it"), Folder("kept"));
  SaveStep(store, 2, 100);
  ASSERT_TRUE(store.WaitReplicated(kLong).ok());
  ASSERT_TRUE(store.Close().ok());
  const std::string address = Address("it");
  internal::CacheTurn turn;
  absl::StatusOr<internal::CachedStore> cached = internal::CacheOf(
      address, kv::Options(),
      std::make_shared<internal::RemoteTrouble>(address, LogSink()), {}, &turn);
  ASSERT_TRUE(cached.ok()) << cached.status();
  turn.reset();
  const auto refreshed = [&](absl::Duration minute) {
    internal::CachedStore later = *cached;
    later.proven = std::make_shared<internal::ProvenPoint>(minute);
    // As it was proven by the refresh before, and that is a minute ago.
    const auto before = internal::AdvanceCache(*cached, kv::Options());
    EXPECT_TRUE(before.ok()) << before.status();
    return internal::AdvanceCache(later, kv::Options()).status();
  };
  EXPECT_TRUE(refreshed(absl::ZeroDuration()).ok());
  const auto is_told = [&](const absl::Status& status) {
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("Open it again"));
  };
  // The folder itself stays, as a bucket does.
  const auto empty = [&] {
    for (const auto& entry : fs::directory_iterator(Folder("it"))) {
      fs::remove_all(entry.path());
    }
  };
  empty();
  fs::copy(Folder("kept"), Folder("it"), fs::copy_options::recursive);
  is_told(refreshed(absl::ZeroDuration()));
  empty();
  is_told(refreshed(absl::ZeroDuration()));
}

// A commit of this size is about a file of the journal: the mirror's writer
// comes and goes, and leaves none of the files that its reader knew.
TEST_F(AddressTest, ARefreshShowsWhatWasAcknowledged) {
  for (const std::size_t size : {std::size_t{100}, std::size_t{1'000'000}}) {
    const std::string name = absl::StrCat("s", size);
    Store store = Write(name, name);
    SaveStep(store, 1, size);
    ASSERT_TRUE(store.WaitReplicated(kLong).ok());
    Store reader = Read(name);
    for (std::int64_t step = 2; step <= 30; ++step) {
      SaveStep(store, step, size);
      ASSERT_TRUE(store.WaitReplicated(kLong).ok());
      ASSERT_TRUE(reader.Refresh().ok());
      ExpectStep(reader, step, size);
      ASSERT_TRUE(store.Tag("newest", step, {.move = true}).ok());
      ASSERT_TRUE(store.WaitReplicated(kLong).ok());
      ASSERT_TRUE(reader.Refresh().ok());
      EXPECT_EQ(reader.OpenStep(Tagged("newest")).value().info().step, step);
      if (step % 4 != 0) continue;
      ASSERT_TRUE(store.Delete(step - 1).ok());
      ASSERT_TRUE(store.WaitReplicated(kLong).ok());
      ASSERT_TRUE(reader.Refresh().ok());
      EXPECT_TRUE(absl::IsNotFound(reader.OpenStep(step - 1).status()));
    }
    ASSERT_TRUE(store.Close().ok());
  }
}

// Another process has its turn, and goes on with it.
TEST_F(AddressTest, NobodyHasToWaitForAnothersTurn) {
  Store store = Write("turns", "turns");
  SaveStep(store, 1, 100);
  ASSERT_TRUE(store.WaitReplicated(kLong).ok());
  StoreOptions options = QuietOptions();
  options.create_if_missing = false;
  options.read_only = true;
  std::atomic<int> asked = -1000000;  // Below zero: nobody has enough.
  options.cancelled = [&asked] { return asked.fetch_add(1) >= 0; };
  Store reader = Store::Open(Address("turns"), options).value();
  std::vector<int> locks;
  for (const auto& entry : fs::recursive_directory_iterator(Disk("cache"))) {
    if (entry.path().extension() != ".advance") continue;
    locks.push_back(open(entry.path().c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_EQ(flock(locks.back(), LOCK_EX | LOCK_NB), 0);
  }
  ASSERT_EQ(locks.size(), 1);
  asked = -2;
  EXPECT_THAT(reader.Refresh().message(), HasSubstr("another process reads"));
  EXPECT_GT(asked, 0);
  asked = -2;
  EXPECT_THAT(Store::Open(Address("turns"), options).status().message(),
              HasSubstr("another process reads"));
  asked = -1000000;
  close(locks.back());
  ASSERT_TRUE(reader.Refresh().ok());
  ExpectStep(reader, 1, 100);
}

bool IsNamed(const VerifyReport& report, std::int64_t step) {
  for (const Finding& finding : report.findings) {
    for (const std::int64_t hurt : finding.steps) {
      if (hurt == step) return true;
    }
  }
  return false;
}

TEST_F(AddressTest, VerifyReadsTheObjects) {
  Store store = Write("a", "it");
  for (int step = 1; step <= 4; ++step) SaveOf(store, step, step);
  ASSERT_TRUE(store.Close().ok());
  const std::vector<fs::path> segments = ObjectsOf(Folder("it"), "segment");
  ASSERT_GE(segments.size(), 4);
  for (const auto level :
       {VerifyOptions::Level::kFull, VerifyOptions::Level::kDeep}) {
    for (const fs::path& path : segments) {
      for (const bool gone : {false, true}) {
        Store reader = Read("it");
        absl::StatusOr<VerifyReport> report = reader.Verify({.level = level});
        ASSERT_TRUE(report.ok()) << report.status();
        EXPECT_TRUE(report->findings.empty()) << report->findings.front().what;
        // In the cache by now, and in this process, is what it was.
        fs::copy_file(path, Disk("whole"),
                      fs::copy_options::overwrite_existing);
        if (gone) {
          fs::remove(path);
        } else {
          Flip(path);
        }
        for (const bool anew : {false, true}) {
          if (anew) reader = Read("it");
          report = reader.Verify({.level = level});
          ASSERT_TRUE(report.ok()) << report.status();
          EXPECT_FALSE(report->findings.empty()) << path << gone << anew;
          int hurt = 0;
          for (int step = 1; step <= 4; ++step) hurt += IsNamed(*report, step);
          EXPECT_EQ(hurt, 1) << path << gone << anew;
        }
        fs::copy_file(Disk("whole"), path,
                      fs::copy_options::overwrite_existing);
      }
    }
  }
  // And of the rows.
  Store reader = Read("it");
  Flip(ObjectsOf(Folder("it"), "commit").front());
  EXPECT_FALSE(
      reader.Verify({.level = VerifyOptions::Level::kDeep})->findings.empty());
}

// One segment is damaged: steps that have nothing of it are whole.
TEST_F(AddressTest, OneDamageCostsWhatStoodThere) {
  {
    Store store = Write("a", "it");
    for (int step = 1; step <= 5; ++step) SaveOf(store, step, step);
    ASSERT_TRUE(store.Close().ok());
  }
  CopyFolder(Folder("it"), Folder("whole"));
  int trial = 0;
  for (const fs::path& whole : ObjectsOf(Folder("whole"), "segment")) {
    for (const std::string how : {"flipped", "cut", "gone"}) {
      CopyFolder(Folder("whole"), Folder("it"));
      const fs::path path =
          fs::path(Folder("it")) / fs::relative(whole, Folder("whole"));
      if (how == "flipped") Flip(path);
      if (how == "cut") fs::resize_file(path, fs::file_size(path) - 10);
      if (how == "gone") fs::remove(path);
      const std::string name = absl::StrCat(++trial);
      UseCache("cache" + name);
      const auto judge = [&](Store& store, const std::string& what) {
        EXPECT_THAT(StepsOf(store), ::testing::ElementsAre(1, 2, 3, 4, 5));
        int lost = 0;
        std::int64_t which = 0;
        for (int step = 1; step <= 5; ++step) {
          const absl::StatusOr<Step> read = store.OpenStep(step);
          ASSERT_TRUE(read.ok()) << what << read.status();
          Bytes bytes(kBytes);
          const absl::Status got = read->Read("params/w", std::span(bytes));
          if (!got.ok()) {
            ++lost;
            which = step;
            EXPECT_TRUE(absl::IsDataLoss(got)) << what << got;
          } else {
            EXPECT_EQ(bytes, RandomBytes(kBytes, step)) << what;
          }
        }
        EXPECT_LE(lost, 1) << what;
        const absl::StatusOr<VerifyReport> report = store.Verify({});
        ASSERT_TRUE(report.ok()) << what << report.status();
        EXPECT_FALSE(report->findings.empty()) << what;
        for (int step = 1; step <= 5 && lost > 0; ++step) {
          EXPECT_EQ(IsNamed(*report, step), step == which) << what << step;
        }
      };
      {
        Store reader = Read("it");
        judge(reader, how + " by address ");
      }
      Store store = Write("new" + name, "it");
      judge(store, how + " from an empty directory ");
      // What is saved from now on is whole, of the same content, too.
      for (int step = 6; step <= 10; ++step) SaveOf(store, step, 11 - step);
      for (int step = 6; step <= 10; ++step) ExpectSeed(store, step, 11 - step);
      ASSERT_TRUE(store.Close().ok());
      Store reader = Read("it");
      for (int step = 6; step <= 10; ++step) {
        ExpectSeed(reader, step, 11 - step);
      }
    }
  }
}

// As an open: whoever looks for what is new hears within a minute that nobody
// answers.
TEST_F(AddressTest, ALookForWhatIsNewWaitsNoLonger) {
  RequestCount count;
  Store store = Write("a", "it");
  SaveOf(store, 1, 1);
  ASSERT_TRUE(store.WaitReplicated(kLong).ok());
  Store reader = Read("it");
  count.Reset();
  ASSERT_TRUE(reader.Refresh().ok());
  EXPECT_FALSE(count.requests().empty());
  EXPECT_LE(count.longest(), absl::Minutes(1));
  count.SetHook([](const std::string&) {
    return absl::UnavailableError("nobody answers");
  });
  EXPECT_TRUE(absl::IsUnavailable(reader.Refresh()));
  count.SetHook(nullptr);
  ASSERT_TRUE(reader.Refresh().ok());
}

// All objects go; that the folder itself is gone says that it is not mounted.
void Empty(const std::string& folder) {
  const fs::path aside = folder + ".deleted";
  fs::remove_all(aside);
  fs::create_directory(aside);
  std::vector<fs::path> all;
  for (const auto& entry : fs::directory_iterator(folder)) {
    all.push_back(entry.path());
  }
  // Whole folders, as a writer may be making one in them.
  for (const fs::path& path : all) fs::rename(path, aside / path.filename());
}

// A prefix that is deleted, or put back, under the process that writes.
TEST_F(AddressTest, AWriterHearsThatItsObjectsAreGone) {
  for (const std::string how : {"deleted", "put back"}) {
    Store store = Write(how, how);
    SaveOf(store, 1, 1);
    CopyFolder(Folder(how), Folder("kept"));
    SaveOf(store, 2, 2);
    const auto save = [&](std::int64_t step) {
      const Bytes bytes = RandomBytes(64, step);
      StepBuilder builder = store.Begin(step);
      builder.Put("params/w", Uint8s(bytes));
      builder.Commit().WaitCommitted(kLong).IgnoreError();
      return store.WaitReplicated(kLong);
    };
    // What is put back is older than its last look.
    for (int step = 3; step <= 16; ++step) ASSERT_TRUE(save(step).ok());
    Empty(Folder(how));
    if (how == "put back") {
      // Beside the writer, which may be putting an index there.
      fs::copy(
          Folder("kept"), Folder(how),
          fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    }
    // At the latest by the twelfth commit behind it, or the next one.
    absl::Status told;
    for (int step = 17; step <= 32 && told.ok(); ++step) told = save(step);
    EXPECT_TRUE(absl::IsDataLoss(told)) << told;
    EXPECT_THAT(std::string(told.message()), HasSubstr(Address(how)));
    EXPECT_THAT(std::string(told.message()), HasSubstr("deleted the objects"));
    store.Close().IgnoreError();
    // As it says.
    Empty(Folder(how));
    StoreOptions anew = RemoteOptions(Address(how));
    anew.take_over = true;
    Store again = Store::Open(Disk(how), anew).value();
    ExpectSeed(again, 2, 2);
    ASSERT_TRUE(again.WaitReplicated(kLong).ok());
    Store reader = Read(how);
    ExpectSeed(reader, 2, 2);
    // A close tells it, too.
    Empty(Folder(how));
    EXPECT_TRUE(absl::IsDataLoss(again.Close()));
  }
}

TEST_F(AddressTest, AMistypedAddressIsNoSecondStore) {
  {
    Store store = Write("a", "right");
    SaveOf(store, 1, 1);
    ASSERT_TRUE(store.Close().ok());
  }
  const absl::Status wrong =
      Store::Open(Disk("a"), RemoteOptions(Address("wrong"))).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(wrong)) << wrong;
  EXPECT_THAT(std::string(wrong.message()), HasSubstr(Address("right")));
  EXPECT_THAT(std::string(wrong.message()), HasSubstr(Disk("a") + "/remote"));
  EXPECT_FALSE(fs::exists(Folder("wrong") + "/store"));
  // Moved, it goes on, and says so.
  fs::rename(Folder("right"), Folder("moved"));
  {
    StoreOptions options = RemoteOptions(Address("moved"));
    std::vector<std::string> said;
    options.log = [&](LogSeverity, std::string_view, std::string_view text) {
      said.emplace_back(text);
    };
    Store store = Store::Open(Disk("a"), options).value();
    SaveOf(store, 2, 2);
    ASSERT_TRUE(store.Close().ok());
    EXPECT_THAT(said,
                ::testing::Contains(::testing::AllOf(
                    HasSubstr(Address("right")), HasSubstr(Address("moved")))));
  }
  // Another copy by the way out.
  fs::remove(Disk("a") + "/remote");
  {
    Store store = Write("a", "second");
    ExpectSeed(store, 2, 2);
    ASSERT_TRUE(store.Close().ok());
  }
  Store reader = Read("second");
  ExpectSeed(reader, 1, 1);
}

}  // namespace
}  // namespace ckptree::testing
