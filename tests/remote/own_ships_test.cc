// SPDX-License-Identifier: Apache-2.0

// Directories that come back from a copy, and those that were moved: only the
// one that shipped what is there goes on.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "ckptree/ckptree.h"
#include "core/engine/remote_look.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"
#include "tests/objects/fixture.h"
#include "tests/remote/fixture.h"
#include "tests/testutil/flip_byte.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class OwnShipsTest : public ObjectStoreTest {
 protected:
  void SetUp() override { UseServers(); }

  StoreOptions Remote() { return RemoteOptions(Address()); }
  // A directory on a disk of its own.
  std::string Disk(const std::string& name) { return disks_ / name; }

  TempDir disks_;
};

constexpr std::size_t kSmallSave = 4 << 10;
constexpr std::size_t kLargeSave = 3 << 20;

// The same directory, by device and inode, with what another one has.
void PutBack(const std::string& from, const std::string& directory) {
  std::vector<fs::path> old;
  for (const auto& entry : fs::directory_iterator(directory)) {
    old.push_back(entry.path());
  }
  for (const fs::path& path : old) fs::remove_all(path);
  fs::copy(from, directory, fs::copy_options::recursive);
}

std::string ReadText(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_F(OwnShipsTest, ADirectoryPutBackFromAnOlderCopyIsRefused) {
  StoreOptions local = QuietOptions();
  const auto save = [](const std::string& directory,
                       const StoreOptions& options, std::int64_t first,
                       std::int64_t last, std::size_t size) {
    absl::StatusOr<Store> store = Store::Open(directory, options);
    ASSERT_TRUE(store.ok()) << store.status();
    for (std::int64_t step = first; step <= last; ++step) {
      SaveStep(*store, step, size);
    }
  };
  save(Disk("a"), Remote(), 1, 2, kSmallSave);
  fs::copy(Disk("a"), Disk("copy"), fs::copy_options::recursive);
  // Nothing was shipped since: it is the directory.
  PutBack(Disk("copy"), Disk("a"));
  save(Disk("a"), Remote(), 3, 5, kSmallSave);
  // However many commits it has made by itself.
  for (std::int64_t last = 2; last <= 8; ++last) {
    PutBack(Disk("copy"), Disk("a"));
    save(Disk("a"), local, 3, last, kLargeSave);
    const absl::Status older = Store::Open(Disk("a"), Remote()).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(older)) << last << ": " << older;
    EXPECT_THAT(std::string(older.message()),
                HasSubstr("older copy of itself"));
  }
  Store store = Store::Open(Disk("b"), Remote()).value();
  for (std::int64_t step = 1; step <= 5; ++step) {
    ExpectStep(store, step, kSmallSave);
  }
  ExpectWhole(store);
}

// A flipped bit there was taken for an older copy of the directory, for that of
// another one, or for another address, as text has no checksum.
TEST_F(OwnShipsTest, AFlippedBitInTheNoteIsNamed) {
  {
    Store store = Store::Open(Disk("a"), Remote()).value();
    for (std::int64_t step = 1; step <= 3; ++step) {
      SaveStep(store, step, kSmallSave);
      ASSERT_TRUE(store.WaitReplicated(absl::Minutes(1)).ok());
    }
  }
  const fs::path path = fs::path(Disk("a")) / "remote";
  const std::uintmax_t size = fs::file_size(path);
  ASSERT_GT(size, 100u);
  for (std::uintmax_t i = 0; i < size; ++i) {
    FlipByte(path.string(), i);
    const absl::Status refused = Store::Open(Disk("a"), Remote()).status();
    EXPECT_TRUE(absl::IsDataLoss(refused)) << i << ": " << refused;
    EXPECT_THAT(std::string(refused.message()),
                AllOf(HasSubstr("/remote is damaged"), HasSubstr("remove it")));
    FlipByte(path.string(), i);
  }
  FlipByte(path.string(), size / 2);
  {
    Store alone = Store::Open(Disk("a"), QuietOptions()).value();
    for (std::int64_t step = 1; step <= 3; ++step) {
      ExpectStep(alone, step, kSmallSave);
    }
    const VerifyReport report = alone.Verify({}).value();
    ASSERT_EQ(report.findings.size(), 1u);
    EXPECT_EQ(report.findings[0].severity, Finding::Severity::kWarning);
    EXPECT_THAT(report.findings[0].what, HasSubstr("/remote is damaged"));
    const internal::RemoteLook look =
        internal::LookAtRemote(alone, absl::Minutes(1));
    EXPECT_EQ(look.address, "");
    EXPECT_TRUE(absl::IsDataLoss(look.reads)) << look.reads;
  }
  // What the error says to do.
  fs::remove(path);
  {
    Store store = Store::Open(Disk("a"), Remote()).value();
    SaveStep(store, 4, kSmallSave);
  }
  Store other = Store::Open(Disk("b"), Remote()).value();
  for (std::int64_t step = 1; step <= 4; ++step) {
    ExpectStep(other, step, kSmallSave);
  }
  ExpectWhole(other);
}

// As engines before it wrote them.
TEST_F(OwnShipsTest, ANoteWithoutADigestIsRead) {
  {
    Store store = Store::Open(Disk("a"), Remote()).value();
    SaveStep(store, 1, kSmallSave);
  }
  const fs::path path = fs::path(Disk("a")) / "remote";
  const std::string text = ReadText(path);
  const std::size_t digest = text.rfind("digest ");
  ASSERT_EQ(text.size() - digest, 7u + 32 + 1);
  std::ofstream(path) << text.substr(0, digest);
  const std::string local = text.substr(text.find('\n') + 1, 32);
  {
    Store store = Store::Open(Disk("a"), Remote()).value();
    SaveStep(store, 2, kSmallSave);
  }
  EXPECT_THAT(ReadText(path), AllOf(HasSubstr("\ndigest "), HasSubstr(local)));
}

// What it asked for and never sent is not what it shipped later.
TEST_F(OwnShipsTest, AnAnnouncedCommitThatNeverWasIsNotTakenForAnother) {
  if (StoreKind() != "file") GTEST_SKIP() << "its commits are files";
  const fs::path folder = Address().substr(std::string("file://").size());
  {
    Store store = Store::Open(Disk("a"), Remote()).value();
    SaveStep(store, 1, kSmallSave);
  }
  const fs::path commits = ObjectsOf(folder, "commit").front().parent_path();
  const std::string away = commits.string() + ".away";
  {
    StoreOptions options = Remote();
    options.remote_timeout = absl::ZeroDuration();
    Store store = Store::Open(Disk("a"), options).value();
    fs::rename(commits, away);
    std::ofstream(commits) << "no folder";
    SaveStep(store, 2, kSmallSave);
    EXPECT_TRUE(absl::IsDeadlineExceeded(store.Close()));
  }
  fs::remove(commits);
  fs::rename(away, commits);
  fs::copy(Disk("a"), Disk("copy"), fs::copy_options::recursive);
  {
    absl::StatusOr<Store> store = Store::Open(Disk("a"), Remote());
    ASSERT_TRUE(store.ok()) << store.status();
    SaveStep(*store, 3, kSmallSave);
  }
  PutBack(Disk("copy"), Disk("a"));
  {
    Store store = Store::Open(Disk("a"), QuietOptions()).value();
    SaveStep(store, 3, kLargeSave);
  }
  const absl::Status older = Store::Open(Disk("a"), Remote()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(older)) << older;
  Store store = Store::Open(Disk("b"), Remote()).value();
  ExpectStep(store, 3, kSmallSave);
}

TEST_F(OwnShipsTest, ADirectoryThatWasMovedGoesOn) {
  {
    Store store = Store::Open(Disk("a"), Remote()).value();
    SaveStep(store, 1, kSmallSave);
    ASSERT_TRUE(store.WaitReplicated(kLong).ok());
    SaveStep(store, 2, kLargeSave);
  }
  fs::copy(Disk("a"), Disk("older"), fs::copy_options::recursive);
  {
    Store store = Store::Open(Disk("a"), Remote()).value();
    SaveStep(store, 3, kSmallSave);
  }
  for (const std::string name : {"a", "older"}) {
    Store store = Store::Open(Disk(name), QuietOptions()).value();
    for (std::int64_t step = name == "a" ? 4 : 3; step <= 6; ++step) {
      SaveStep(store, step, name == "a" ? kSmallSave : kLargeSave);
    }
  }
  const absl::Status older = Store::Open(Disk("older"), Remote()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(older)) << older;
  fs::copy(Disk("a"), Disk("moved"), fs::copy_options::recursive);
  {
    absl::StatusOr<Store> store = Store::Open(Disk("moved"), Remote());
    ASSERT_TRUE(store.ok()) << store.status();
    SaveStep(*store, 7, kSmallSave);
  }
  // What it was moved from has become the copy.
  const absl::Status left = Store::Open(Disk("a"), Remote()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(left)) << left;
  Store store = Store::Open(Disk("b"), Remote()).value();
  EXPECT_THAT(StepsOf(store), ::testing::ElementsAre(1, 2, 3, 4, 5, 6, 7));
  for (const std::int64_t step : {3, 4, 5, 6, 7}) {
    ExpectStep(store, step, kSmallSave);
  }
  ExpectWhole(store);
}

// Whatever the last commit was that the directory shipped before it was moved.
// What was copied before that, with a newer note, is an older copy.
TEST_F(OwnShipsTest, ADirectoryThatWasMovedAfterAnyChangeGoesOn) {
  const std::vector<std::function<absl::Status(Store&)>> changes = {
      [](Store& store) { return store.Tag("t", AtStep(1)); },
      [](Store& store) { return store.Pin(AtStep(1)); },
      [](Store& store) { return store.Delete({AtStep(1)}); },
      [](Store& store) { return store.Fork(AtStep(1), "fork"); },
      [](Store& store) {
        const absl::Status dropped = store.DropBranch("old");
        return dropped.ok() ? store.Fork(AtStep(2), "new") : dropped;
      },
      [](Store& store) { return store.Untag("old"); },
      [](Store& store) { return store.DropBranch("old"); }};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    SCOPED_TRACE(i);
    const std::string name = absl::StrFormat("%d", i);
    const StoreOptions remote = RemoteOptions("file://" + Disk("far" + name));
    {
      Store store = Store::Open(Disk(name), remote).value();
      SaveStep(store, 1, kSmallSave);
      SaveStep(store, 2, kSmallSave);
      ASSERT_TRUE(store.Fork(AtStep(2), "old").ok());
      ASSERT_TRUE(store.Tag("old", AtStep(2)).ok());
      ASSERT_TRUE(store.Close().ok());
    }
    fs::copy(Disk(name), Disk("torn" + name), fs::copy_options::recursive);
    {
      Store store = Store::Open(Disk(name), remote).value();
      ASSERT_TRUE(changes[i](store).ok());
      ASSERT_TRUE(store.Close().ok());
    }
    fs::copy(Disk(name), Disk("moved" + name), fs::copy_options::recursive);
    fs::copy(Disk(name) + "/remote", Disk("torn" + name) + "/remote",
             fs::copy_options::overwrite_existing);
    for (const std::string copy : {"torn", "moved"}) {
      Store store = Store::Open(Disk(copy + name), QuietOptions()).value();
      for (std::int64_t step = 3; step <= 5; ++step) {
        SaveStep(store, step, copy == "moved" ? kSmallSave : kLargeSave);
      }
      ASSERT_TRUE(store.Close().ok());
    }
    const absl::Status torn = Store::Open(Disk("torn" + name), remote).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(torn)) << torn;
    absl::StatusOr<Store> moved = Store::Open(Disk("moved" + name), remote);
    ASSERT_TRUE(moved.ok()) << moved.status();
    SaveStep(*moved, 6, kSmallSave);
    ASSERT_TRUE(moved->Close().ok());
    Store store = Store::Open(Disk("new" + name), remote).value();
    for (const std::int64_t step : {2, 3, 4, 5, 6}) {
      ExpectStep(store, step, kSmallSave);
    }
    ExpectWhole(store);
  }
}

// The last that it shipped is what was lost there, and no row.
TEST_F(OwnShipsTest, ADirectoryThatWasMovedAfterAMendGoesOn) {
  const StoreOptions remote = RemoteOptions("file://" + Disk("far"));
  {
    Store store = Store::Open(Disk("a"), remote).value();
    SaveStep(store, 1, kLargeSave);
    ASSERT_TRUE(store.Close().ok());
  }
  fs::copy(Disk("a"), Disk("torn"), fs::copy_options::recursive);
  const std::vector<fs::path> segments = ObjectsOf(Disk("far"), "segment");
  for (const fs::path& segment : segments) fs::remove(segment);
  {
    Store store = Store::Open(Disk("a"), remote).value();
    SaveStep(store, 2, kSmallSave);
    ASSERT_TRUE(store.Close().ok());
  }
  ASSERT_GE(ObjectsOf(Disk("far"), "segment").size(), segments.size());
  fs::copy(Disk("a"), Disk("moved"), fs::copy_options::recursive);
  fs::copy(Disk("a") + "/remote", Disk("torn") + "/remote",
           fs::copy_options::overwrite_existing);
  for (const std::string copy : {"torn", "moved"}) {
    Store store = Store::Open(Disk(copy), QuietOptions()).value();
    for (std::int64_t step = 3; step <= 5; ++step) {
      SaveStep(store, step, kSmallSave);
    }
    ASSERT_TRUE(store.Close().ok());
  }
  const absl::Status torn = Store::Open(Disk("torn"), remote).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(torn)) << torn;
  absl::StatusOr<Store> moved = Store::Open(Disk("moved"), remote);
  ASSERT_TRUE(moved.ok()) << moved.status();
  ASSERT_TRUE(moved->Close().ok());
  Store store = Store::Open(Disk("new"), remote).value();
  ExpectStep(store, 1, kLargeSave);
  for (const std::int64_t step : {2, 3, 4, 5}) {
    ExpectStep(store, step, kSmallSave);
  }
  ExpectWhole(store);
}

// The step that it shipped last was removed since, or saved anew, and nobody
// knows there. What was copied before that step, with a newer note, is an older
// copy, also where it removed a step of that number by itself.
TEST_F(OwnShipsTest, ADirectoryThatRemovedWhatItShippedGoesOn) {
  const auto overwrite = [](Store& store) {
    StepBuilder builder = store.Begin(2, {.overwrite = true});
    builder.PutInt("count", 7);
    return builder.Commit().WaitCommitted(kLong);
  };
  const std::vector<std::function<absl::Status(Store&)>> changes = {
      [](Store& store) { return store.Delete(2); },
      [](Store& store) {
        const absl::Status deleted = store.Delete(2);
        return deleted.ok() ? store.Collect().status() : deleted;
      },
      overwrite};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    SCOPED_TRACE(i);
    const std::string name = absl::StrFormat("%d", i);
    const std::string far = Disk("far" + name);
    StoreOptions remote = RemoteOptions("file://" + far);
    remote.take_over = true;  // It was not closed there.
    StoreOptions impatient = remote;
    impatient.remote_timeout = absl::ZeroDuration();
    {
      Store store = Store::Open(Disk(name), remote).value();
      SaveStep(store, 1, kSmallSave);
      ASSERT_TRUE(store.Close().ok());
    }
    fs::copy(Disk(name), Disk("torn" + name), fs::copy_options::recursive);
    {
      Store store = Store::Open(Disk(name), impatient).value();
      SaveStep(store, 2, kSmallSave);
      ASSERT_TRUE(store.WaitReplicated(kLong).ok());
      fs::rename(far, far + ".away");
      SaveStep(store, 3, kSmallSave);
      ASSERT_TRUE(changes[i](store).ok());
      SaveStep(store, 4, kSmallSave);
      EXPECT_TRUE(absl::IsDeadlineExceeded(store.Close()));
    }
    fs::rename(far + ".away", far);
    fs::copy(Disk(name), Disk("moved" + name), fs::copy_options::recursive);
    fs::copy(Disk(name) + "/remote", Disk("torn" + name) + "/remote",
             fs::copy_options::overwrite_existing);
    {
      Store store = Store::Open(Disk("torn" + name), QuietOptions()).value();
      for (const std::int64_t step : {2, 3}) {
        SaveStep(store, step, kSmallSave);
      }
      ASSERT_TRUE(changes[i](store).ok());
      SaveStep(store, 4, kSmallSave);
      ASSERT_TRUE(store.Close().ok());
    }
    const absl::Status torn = Store::Open(Disk("torn" + name), remote).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(torn)) << torn;
    {
      absl::StatusOr<Store> moved = Store::Open(Disk("moved" + name), remote);
      ASSERT_TRUE(moved.ok()) << moved.status();
      ASSERT_TRUE(moved->Close().ok());
    }
    Store store = Store::Open(Disk("new" + name), remote).value();
    for (const std::int64_t step : {1, 3, 4}) {
      ExpectStep(store, step, kSmallSave);
    }
    EXPECT_EQ(StepsOf(store).size(), i == 2 ? 4u : 3u);
    ExpectWhole(store);
  }
}

TEST_F(OwnShipsTest, TheLogSaysThatItGoesOnElsewhereWhereItDoes) {
  std::vector<std::string> logged;
  const auto options = [&](const std::string& folder) {
    StoreOptions remote = RemoteOptions("file://" + Disk(folder));
    remote.log = [&](LogSeverity, std::string_view, std::string_view message) {
      logged.emplace_back(message);
    };
    return remote;
  };
  for (const std::string name : {"a", "b"}) {
    absl::StatusOr<Store> store =
        Store::Open(Disk(name), options("far-" + name));
    ASSERT_TRUE(store.ok()) << store.status();
    SaveStep(*store, 1, kSmallSave);
  }
  const auto says = ::testing::Contains(HasSubstr("goes on in"));
  EXPECT_THAT(logged, ::testing::Not(says));
  const absl::Status refused =
      Store::Open(Disk("a"), options("far-b")).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(logged, ::testing::Not(says));
  fs::copy(Disk("far-a"), Disk("moved"), fs::copy_options::recursive);
  // The same address, whatever slashes it has.
  ASSERT_TRUE(Store::Open(Disk("a"), options("far-a/")).ok());
  EXPECT_THAT(logged, ::testing::Not(says));
  ASSERT_TRUE(Store::Open(Disk("a"), options("moved")).ok());
  EXPECT_THAT(logged, says);
}

}  // namespace
}  // namespace ckptree::testing
