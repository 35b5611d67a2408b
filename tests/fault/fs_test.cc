// SPDX-License-Identifier: Apache-2.0

// Each way of FaultFs to fail, shown on plain files.

#include "tests/fault/fs.h"

#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <set>
#include <string>

#include "gtest/gtest.h"
#include "tests/fault/directory.h"
#include "tests/fault/runner.h"

namespace ckptree::testing {
namespace {

using Mode = FaultPlan::Mode;

// A few verbs over a FaultFs; every one must succeed.
class Files {
 public:
  Files(const TrialDirectory& directory, FaultCounts* counts)
      : root_(directory.store()), fs_(directory.scratch(), counts) {}

  FaultFs& fs() { return fs_; }
  std::string At(const std::string& name) const { return root_ + "/" + name; }

  std::unique_ptr<rocksdb::FSWritableFile> New(const std::string& name) {
    std::unique_ptr<rocksdb::FSWritableFile> file;
    Must(fs_.NewWritableFile(At(name), {}, &file, nullptr));
    return file;
  }
  void Write(rocksdb::FSWritableFile& file, const std::string& bytes) {
    Must(file.Append(bytes, {}, nullptr));
  }
  void Sync(rocksdb::FSWritableFile& file) { Must(file.Sync({}, nullptr)); }
  void SyncDirectory(const std::string& name = "") {
    std::unique_ptr<rocksdb::FSDirectory> directory;
    Must(fs_.NewDirectory(At(name), {}, &directory, nullptr));
    Must(directory->Fsync({}, nullptr));
  }
  void Durable(const std::string& name, const std::string& bytes) {
    auto file = New(name);
    Write(*file, bytes);
    Sync(*file);
    SyncDirectory();
  }
  void Pwrite(const std::string& name, std::uint64_t at,
              const std::string& bytes, bool sync) {
    std::unique_ptr<rocksdb::FSRandomRWFile> file;
    Must(fs_.NewRandomRWFile(At(name), {}, &file, nullptr));
    Must(file->Write(at, bytes, {}, nullptr));
    if (sync) Must(file->Sync({}, nullptr));
  }
  void Must(const rocksdb::IOStatus& status) {
    if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
    if (!status.ok()) _exit(9);
  }

 private:
  std::string root_;
  FaultFs fs_;
};

class FaultFsTest : public ::testing::Test {
 protected:
  FaultFsTest() { std::filesystem::create_directory(directory_.store()); }

  TrialResult Child(const std::function<void(Files&, const TrialPipe&)>& body) {
    directory_.Clear();
    counts_->Reset();
    std::filesystem::create_directory(directory_.store());
    return RunChild([&](const TrialPipe& pipe) {
      Files files(directory_, counts_.get());
      body(files, pipe);
    });
  }
  std::string Path(const std::string& name) const {
    return directory_.store() + "/" + name;
  }
  bool Has(const std::string& name) const {
    return std::filesystem::exists(Path(name));
  }
  std::string Content(const std::string& name) const {
    std::ifstream file(Path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  TrialDirectory directory_;
  SharedFaultCounts counts_;
};

TEST_F(FaultFsTest, ClassesFollowFromNames) {
  EXPECT_EQ(ClassOf("/s/journal/a-0000000012"), FileClass::kJournal);
  EXPECT_EQ(ClassOf("/s/db/MANIFEST-000004"), FileClass::kManifest);
  EXPECT_EQ(ClassOf("/s/db/CURRENT"), FileClass::kCurrent);
  EXPECT_EQ(ClassOf("/s/db/000004.dbtmp"), FileClass::kCurrent);
  EXPECT_EQ(ClassOf("/s/db/000012.sst"), FileClass::kSst);
  EXPECT_EQ(ClassOf("/s/staging/7/chunks-0.sst"), FileClass::kStaging);
  EXPECT_EQ(ClassOf("/s/journal/b-0000000012"), FileClass::kJournalCopy);
  EXPECT_EQ(ClassOf("/s/journal/tip"), FileClass::kOther);
  EXPECT_EQ(ClassOf("/s/CREATING"), FileClass::kCreating);
  EXPECT_EQ(ClassOf("/s/db"), FileClass::kOther);
}

TEST_F(FaultFsTest, CountsByKindAndClass) {
  const TrialResult result = Child([](Files& files, const TrialPipe&) {
    files.fs().Arm({});
    files.Durable("a-0000000001", "abc");
    files.Must(files.fs().RenameFile(files.At("a-0000000001"),
                                     files.At("000002.sst"), {}, nullptr));
    files.Must(files.fs().DeleteFile(files.At("000002.sst"), {}, nullptr));
  });
  ASSERT_FALSE(result.broken()) << result.Text();
  const auto count = [this](CallKind kind, FileClass file_class) {
    return counts_
        ->by_kind[static_cast<std::size_t>(kind)]
                 [static_cast<std::size_t>(file_class)]
        .load();
  };
  EXPECT_EQ(count(CallKind::kOpen, FileClass::kJournal), 1u);
  EXPECT_EQ(count(CallKind::kWrite, FileClass::kJournal), 1u);
  EXPECT_EQ(count(CallKind::kSync, FileClass::kJournal), 1u);
  EXPECT_EQ(count(CallKind::kSyncDirectory, FileClass::kOther), 1u);
  EXPECT_EQ(count(CallKind::kRename, FileClass::kSst), 1u);
  EXPECT_EQ(count(CallKind::kUnlink, FileClass::kSst), 1u);
  EXPECT_EQ(counts_->calls, 6u);
  EXPECT_EQ(counts_->fired, 0u);
}

TEST_F(FaultFsTest, FailsTheNthCallOnce) {
  const TrialResult result = Child([](Files& files, const TrialPipe& pipe) {
    auto file = files.New("a");
    files.fs().Arm({{.mode = Mode::kFail, .at = 2, .error = ENOSPC}});
    for (int i = 0; i < 3; ++i) {
      rocksdb::IOStatus status = file->Append("x", {}, nullptr);
      pipe.Say(status.ok() ? "ok" : status.IsNoSpace() ? "full" : "error");
    }
  });
  ASSERT_FALSE(result.broken()) << result.Text();
  EXPECT_EQ(result.lines, (std::vector<std::string>{"ok", "full", "ok"}));
  EXPECT_EQ(counts_->fired, 1u);
  EXPECT_EQ(Content("a"), "xx");
}

TEST_F(FaultFsTest, StickyFailuresStayAndMayWriteAPart) {
  const TrialResult result = Child([](Files& files, const TrialPipe& pipe) {
    auto file = files.New("a");
    files.fs().Arm({{.mode = Mode::kFail, .at = 2, .sticky = true, .seed = 3}});
    for (int i = 0; i < 3; ++i) {
      pipe.Say(file->Append(std::string(100, 'x'), {}, nullptr).ok() ? "ok"
                                                                     : "error");
    }
  });
  ASSERT_FALSE(result.broken()) << result.Text();
  EXPECT_EQ(result.lines, (std::vector<std::string>{"ok", "error", "error"}));
  EXPECT_EQ(counts_->fired, 2u);
  EXPECT_GT(Content("a").size(), 100u);
  EXPECT_LT(Content("a").size(), 300u);
}

TEST_F(FaultFsTest, APartInPlaceEndsWhereASectorDoes) {
  std::set<std::size_t> sizes;
  for (std::uint64_t seed = 1; seed < 40; seed += 2) {
    const TrialResult result = Child([seed](Files& files, const TrialPipe&) {
      files.Durable("a", std::string(4096, 'o'));
      files.fs().Arm({{.mode = Mode::kKill,
                       .kinds = Bit(CallKind::kPwrite),
                       .seed = seed}});
      files.Pwrite("a", 100, std::string(3900, 'n'), /*sync=*/false);
    });
    ASSERT_TRUE(result.killed) << result.Text();
    const std::string content = Content("a");
    const std::size_t first = content.find('n');
    if (first == std::string::npos) continue;
    EXPECT_EQ(first, 100u);
    const std::size_t end = content.find('o', first);
    EXPECT_EQ(end % kSector, 0u);
    sizes.insert(end);
  }
  EXPECT_GT(sizes.size(), 4u);
}

TEST_F(FaultFsTest, OnlyTheKindsAndClassesOfThePlanFail) {
  const TrialResult result = Child([](Files& files, const TrialPipe& pipe) {
    auto first = files.New("a-0000000001");
    auto copy = files.New("b-0000000001");
    files.fs().Arm({{.mode = Mode::kFail,
                     .at = 1,
                     .kinds = Bit(CallKind::kSync),
                     .classes = Bit(FileClass::kJournalCopy)}});
    files.Write(*first, "a");
    files.Sync(*first);
    files.Write(*copy, "b");
    pipe.Say(copy->Sync({}, nullptr).ok() ? "ok" : "error");
  });
  ASSERT_FALSE(result.broken()) << result.Text();
  EXPECT_EQ(result.lines, (std::vector<std::string>{"error"}));
  EXPECT_NE(counts_->FiredAt().find("sync of journal copy"), std::string::npos);
}

TEST_F(FaultFsTest, KillsBeforeTheCall) {
  const TrialResult result = Child([](Files& files, const TrialPipe& pipe) {
    auto file = files.New("a");
    files.fs().Arm({{.mode = Mode::kKill, .at = 3}});
    for (;;) {
      files.Write(*file, "x");
      pipe.Say("ACK");
    }
  });
  EXPECT_TRUE(result.killed) << result.Text();
  EXPECT_EQ(result.Said("ACK").size(), 2u);
  EXPECT_EQ(Content("a"), "xx");  // No power was cut: bytes stay.
  EXPECT_EQ(counts_->fired, 1u);
}

TEST_F(FaultFsTest, PowerCutKeepsWhatIsSyncedAndSomeOfTheRest) {
  std::set<std::size_t> sizes;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const TrialResult result = Child([seed](Files& files, const TrialPipe&) {
      files.Durable("a", std::string(700, 'd'));
      auto file = files.New("b");
      files.Write(*file, std::string(600, 's'));
      files.Sync(*file);
      files.SyncDirectory();
      files.Write(*file, std::string(3000, 'u'));
      files.fs().CutPower(seed);
    });
    ASSERT_TRUE(result.killed) << result.Text();
    EXPECT_EQ(Content("a"), std::string(700, 'd'));
    const std::string b = Content("b");
    ASSERT_GE(b.size(), 600u);
    ASSERT_LE(b.size(), 3600u);
    EXPECT_EQ(b.substr(0, 600), std::string(600, 's'));
    for (char c : b.substr(600)) ASSERT_TRUE(c == 'u' || c == '\0');
    sizes.insert(b.size());
    EXPECT_EQ(counts_->fired, 1u);
  }
  EXPECT_TRUE(sizes.contains(600));
  EXPECT_TRUE(sizes.contains(3600));
  EXPECT_GT(sizes.size(), 5u);
}

TEST_F(FaultFsTest, PowerCutBringsOverwrittenSectorsBackWhole) {
  std::set<std::string> seen;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const TrialResult result = Child([seed](Files& files, const TrialPipe&) {
      files.Durable("HEAD", std::string(2048, 'o'));
      files.Pwrite("HEAD", 512, std::string(1024, 'n'), /*sync=*/false);
      files.fs().CutPower(seed);
    });
    ASSERT_TRUE(result.killed) << result.Text();
    const std::string head = Content("HEAD");
    ASSERT_EQ(head.size(), 2048u);
    for (std::size_t at = 0; at < 2048; at += 512) {
      EXPECT_EQ(head.substr(at, 512), std::string(512, head[at]));
    }
    seen.insert({head[0], head[512], head[1024], head[1536]});
  }
  EXPECT_EQ(seen, (std::set<std::string>{"oooo", "onoo", "oono", "onno"}));
}

TEST_F(FaultFsTest, PowerCutLosesEntriesUntilTheDirectoryIsSynced) {
  int there = 0;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const TrialResult result = Child([seed](Files& files, const TrialPipe&) {
      files.Durable("old", "o");
      auto file = files.New("new");
      files.Write(*file, "n");
      files.Sync(*file);
      files.fs().CutPower(seed);
    });
    ASSERT_TRUE(result.killed) << result.Text();
    EXPECT_EQ(Content("old"), "o");
    there += Has("new") ? 1 : 0;
  }
  EXPECT_GT(there, 3);
  EXPECT_LT(there, 27);
}

TEST_F(FaultFsTest, PowerCutBringsUnlinkedFilesBack) {
  int back = 0;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const TrialResult result = Child([seed](Files& files, const TrialPipe&) {
      files.Durable("a", "a");
      files.Durable("b", "b");
      files.Must(files.fs().DeleteFile(files.At("a"), {}, nullptr));
      files.SyncDirectory();
      files.Must(files.fs().DeleteFile(files.At("b"), {}, nullptr));
      files.fs().CutPower(seed);
    });
    ASSERT_TRUE(result.killed) << result.Text();
    EXPECT_FALSE(Has("a"));
    if (Has("b")) {
      EXPECT_EQ(Content("b"), "b");
      ++back;
    }
  }
  EXPECT_GT(back, 3);
  EXPECT_LT(back, 27);
}

TEST_F(FaultFsTest, RenameIsAtomicInAPowerCut) {
  int renamed = 0;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const TrialResult result = Child([seed](Files& files, const TrialPipe&) {
      files.Durable("CURRENT", "old");
      files.Durable("1.dbtmp", "new");
      files.Must(files.fs().RenameFile(files.At("1.dbtmp"), files.At("CURRENT"),
                                       {}, nullptr));
      files.fs().CutPower(seed);
    });
    ASSERT_TRUE(result.killed) << result.Text();
    EXPECT_EQ(Content("CURRENT"), Has("1.dbtmp") ? "old" : "new");
    renamed += Has("1.dbtmp") ? 0 : 1;
  }
  EXPECT_GT(renamed, 3);
  EXPECT_LT(renamed, 27);
}

TEST_F(FaultFsTest, PowerCutLosesADirectoryWhoseParentWasNotSynced) {
  int there = 0;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const TrialResult result = Child([seed](Files& files, const TrialPipe&) {
      files.Must(files.fs().CreateDir(files.At("sub"), {}, nullptr));
      auto file = files.New("sub/a");
      files.Write(*file, "a");
      files.Sync(*file);
      files.SyncDirectory("sub");
      files.fs().CutPower(seed);
    });
    ASSERT_TRUE(result.killed) << result.Text();
    if (Has("sub")) {
      EXPECT_EQ(Content("sub/a"), "a");
      ++there;
    }
  }
  EXPECT_GT(there, 3);
  EXPECT_LT(there, 27);
}

TEST_F(FaultFsTest, BytesOfAFailedSyncVanishAtTheNextPowerCut) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const TrialResult result =
        Child([seed](Files& files, const TrialPipe& pipe) {
          files.Durable("a", "durable.");
          files.Durable("b", "durable.");
          std::unique_ptr<rocksdb::FSWritableFile> file;
          files.Must(
              files.fs().ReopenWritableFile(files.At("a"), {}, &file, nullptr));
          files.fs().Arm({{.mode = Mode::kFailAndDrop,
                           .at = 1,
                           .kinds = Bit(CallKind::kSync)}});
          files.Write(*file, "dropped.");
          pipe.Say(file->Sync({}, nullptr).ok() ? "ok" : "error");
          files.Sync(*file);  // Succeeds and makes nothing durable.
          std::ifstream again(files.At("a"));
          std::string text;
          again >> text;
          pipe.Say(text);
          if (seed % 2 == 1) {
            files.Write(*file, "later.");
            files.Sync(*file);
          }
          files.fs().CutPower(seed);
        });
    ASSERT_TRUE(result.killed) << result.Text();
    EXPECT_EQ(result.lines,
              (std::vector<std::string>{"error", "durable.dropped."}));
    EXPECT_EQ(counts_->fired, 2u);
    EXPECT_EQ(Content("a"), seed % 2 == 1
                                ? "durable." + std::string(8, '\0') + "later."
                                : "durable.");
    EXPECT_EQ(Content("b"), "durable.");
  }
}

TEST_F(FaultFsTest, ReadsFailWhenThePlanNamesThem) {
  const TrialResult result = Child([](Files& files, const TrialPipe& pipe) {
    files.Durable("a", "abc");
    files.fs().Arm(
        {{.mode = Mode::kFail, .at = 2, .kinds = Bit(CallKind::kRead)}});
    std::unique_ptr<rocksdb::FSRandomAccessFile> file;
    files.Must(
        files.fs().NewRandomAccessFile(files.At("a"), {}, &file, nullptr));
    for (int i = 0; i < 3; ++i) {
      char bytes[3];
      rocksdb::Slice slice;
      pipe.Say(file->Read(0, 3, {}, &slice, bytes, nullptr).ok() ? "ok"
                                                                 : "error");
    }
  });
  ASSERT_FALSE(result.broken()) << result.Text();
  EXPECT_EQ(result.lines, (std::vector<std::string>{"ok", "error", "ok"}));
}

}  // namespace
}  // namespace ckptree::testing
