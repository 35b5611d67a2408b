// SPDX-License-Identifier: Apache-2.0

// Where a store may find itself: on a disk without a free byte, among files of
// another owner, files that are huge, linked or no files, and sixteen programs
// that want to create it at once. Judged by the model, as damage is.

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "tests/fault/directory.h"
#include "tests/fault/runner.h"
#include "tests/fault/scale.h"
#include "tests/judge/files.h"
#include "tests/judge/kinds.h"
#include "tests/judge/record.h"
#include "tests/judge/table.h"
#include "tests/judge/verbs.h"
#include "tests/model/store.h"
#include "tests/testutil/sanitizer.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kStarters = 16;
constexpr uid_t kOwner = 1000;
constexpr uid_t kStranger = 65534;
constexpr std::uint64_t kSlack = 16 << 20;  // Free bytes before it is filled.

// Fills the disk of `path`: not a byte of any file can be written.
bool Fill(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  const std::string block(1 << 20, 'f');
  std::size_t size = block.size();
  while (size > 0) {
    const ssize_t n = write(fd, block.data(), size);
    if (n < 0 && errno != ENOSPC) return false;
    if (n <= 0) size /= 2;
  }
  close(fd);
  return true;
}

struct DeletingVerb {
  std::string name;
  // Changes the store, and the model by what was acknowledged.
  std::function<absl::Status(Store&, Acknowledged*)> run;
};

std::vector<DeletingVerb> DeletingVerbs() {
  return {
      {"open", [](Store&, Acknowledged*) { return absl::OkStatus(); }},
      {"delete",
       [](Store& store, Acknowledged* known) {
         for (const auto& [key, content] : known->state.steps) {
           if (known->state.pins.contains(key)) continue;
           const std::int64_t victim = key;
           absl::Status status = store.Delete(SelectorOf(victim));
           if (status.ok()) known->state.Delete(victim);
           return status;
         }
         return absl::InternalError("no step");
       }},
      {"drop a branch",
       [](Store& store, Acknowledged* known) {
         const std::int64_t branch = *known->state.branches.rbegin();
         absl::Status status = store.DropBranch(BranchName(branch));
         if (status.ok()) {
           known->state.DropBranch(branch);
           known->origins.erase(branch);
         }
         return status;
       }},
      {"untag",
       [](Store& store, Acknowledged* known) {
         const std::string tag = known->state.tags.begin()->first;
         absl::Status status = store.Untag(tag);
         if (status.ok()) known->state.tags.erase(tag);
         return status;
       }},
      {"policy",
       [](Store& store, Acknowledged* known) {
         const Preservation policy = ParsePreservation("latest(1)").value();
         absl::Status status = store.SetPolicy(policy);
         if (!status.ok()) return status;
         known->policies[0] = Text(policy);
         status = store.ApplyPolicy().status();
         if (!status.ok()) return status;
         for (const std::int64_t key :
              known->state.Victims(0, 1, /*by_policy=*/true)) {
           known->state.Delete(key);
         }
         return status;
       }},
      {"collect",
       [](Store& store, Acknowledged*) {
         CollectOptions options;
         options.min_dead_fraction = 0;
         return store.Collect(options).status();
       }},
      {"close", [](Store& store, Acknowledged*) { return store.Close(); }},
  };
}

class TrialPlacesTest : public ::testing::Test {
 protected:
  void Make(const std::string& kind) {
    fs::remove_all(directory_.path());
    fs::create_directories(directory_.path());
    MadeStore made = MakeKind(kind, 20261122, directory_.store(),
                              directory_.path() + "/earlier");
    ASSERT_EQ(made.error, "");
    known_ = std::move(made.known);
    files_ = ReadFiles(directory_.store());
    fs::remove_all(directory_.store());
    fs::remove_all(directory_.path() + "/earlier");
    kind_ = kind;
  }

  // In a child with a time limit, which says each verdict. Faults in `allowed`
  // are counted and right; `what` tells like trials apart.
  void Try(const std::string& shape, const std::string& where,
           const std::string& what, unsigned allowed,
           const std::function<void(std::vector<Verdict>*)>& body) {
    if (++tries_ % TrialStride() != 0) return;
    // What is thrown ends the child.
    const TrialResult result = RunChild([&](const TrialPipe& pipe) noexcept {
      std::vector<Verdict> verdicts;
      body(&verdicts);
      for (const Verdict& verdict : verdicts) {
        pipe.Say(absl::StrFormat("IS %d %s", verdict.faults, verdict.text));
      }
      _exit(0);
    });
    unsigned faults = 0;
    std::string text;
    for (const std::string& line : result.lines) {
      const std::vector<std::string> words =
          absl::StrSplit(line, absl::MaxSplits(' ', 2));
      faults |= static_cast<unsigned>(std::atoll(words[1].c_str()));
      if (!words[2].empty()) absl::StrAppend(&text, words[2], "; ");
    }
    if (result.broken() || result.killed) {
      faults |= result.signal == SIGALRM ? kHung : kAborted;
      absl::StrAppend(&text, "signal ", result.signal);
    }
    table_.Add(kind_, shape, where, faults, faults & ~allowed);
    if ((faults & ~allowed) != 0) {
      absl::StrAppendFormat(&failures_, "  %s, %s, %s, %s: %s\n", kind_, shape,
                            where, what, text.substr(0, 600));
    }
  }

  Verdict Judged(const std::string& folder, Verb verb,
                 const Acknowledged& known) const {
    return Judge({.files = nullptr, .known = &known}, folder, verb);
  }

  // ---- in a child ----

  std::string Disk() const { return directory_.path() + "/disk"; }

  // The store on a disk of its own, that of this process alone.
  void MountDisk() const;
  // Runs the verb where not a byte is free; `known_` is what was acknowledged.
  Verdict OnFullDisk(const DeletingVerb& verb, bool open_before);
  // The program, again and again, with exit code 0; with 3 where the words
  // begin with '!', which are what it does not find.
  Verdict ProgramOnFullDisk(const std::vector<std::string>& commands) const;

  // Sixteen processes that create the store where it is missing, wait for each
  // other, and save a step each.
  Verdict Start(const Acknowledged& known) const;

  void Report(std::string_view what) {
    std::cout << table_.Text(/*whole=*/false) << "trial places, " << what
              << ": " << table_.Summary() << "\n"
              << std::flush;
    EXPECT_EQ(table_.wrong(), 0) << failures_;
  }

  TrialDirectory directory_;
  std::string kind_;
  Acknowledged known_;
  StoreFiles files_;
  JudgeTable table_;
  std::string failures_;
  int tries_ = 0;
};

// ---- a disk without a free byte ----

void TrialPlacesTest::MountDisk() const {
  std::uint64_t size = kSlack;
  for (const auto& [name, bytes] : files_.bytes) size += bytes.size() + 4096;
  fs::create_directory(Disk());
  if (unshare(CLONE_NEWNS) != 0 ||
      mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("none", Disk().c_str(), "tmpfs", 0,
            absl::StrFormat("size=%d", size).c_str()) != 0) {
    std::abort();
  }
  WriteFiles(files_, {}, Disk() + "/store");
}

Verdict TrialPlacesTest::ProgramOnFullDisk(
    const std::vector<std::string>& commands) const {
  MountDisk();
  Verdict verdict;
  int fillers = 0;
  for (std::string words : commands) {
    const int expected = words.starts_with('!') ? 3 : 0;
    if (expected != 0) words.erase(0, 1);
    // What a command gave back is gone again.
    if (!Fill(absl::StrCat(Disk(), "/filler", fillers++))) std::abort();
    const std::string output = directory_.path() + "/output";
    const int status =
        std::system(absl::StrFormat("'%s' -C '%s/store' %s > '%s' 2>&1",
                                    CKPTREE_BINARY, Disk(), words, output)
                        .c_str());
    std::ifstream file(output);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    if (!WIFEXITED(status) || WEXITSTATUS(status) != expected) {
      verdict.Add(kNoWrite, absl::StrCat(words, ": ", text));
    } else if (text.starts_with("error:") ||
               text.find("\nerror:") != std::string::npos ||
               text.find("ckptree: error:") != std::string::npos) {
      verdict.Add(kOther, absl::StrCat(words, ": exit code 0, and: ", text));
    }
  }
  while (fillers > 0) fs::remove(absl::StrCat(Disk(), "/filler", --fillers));
  return verdict;
}

Verdict TrialPlacesTest::OnFullDisk(const DeletingVerb& verb,
                                    bool open_before) {
  MountDisk();
  const std::string path = Disk() + "/store";
  const std::string filler = Disk() + "/filler";
  Verdict verdict;
  absl::Status status;
  {
    absl::StatusOr<Store> store = absl::UnavailableError("not open");
    if (open_before) {
      store = OpenStore(path, 1);
      // What a killed process left is mended first: a disk that gets full in
      // the very moment of a flush ends the handle, and the next open goes on.
      if (store.ok()) {
        store->Collect({.min_dead_fraction = 1}).status().IgnoreError();
      }
    }
    if (!Fill(filler)) std::abort();
    if (!open_before) store = OpenStore(path, 1);
    status = store.status();
    if (status.ok()) status = verb.run(*store, &known_);
  }
  if (!status.ok()) {
    verdict.Add(kNoWrite, absl::StrCat(verb.name, ": ", status.ToString()));
  }
  fs::remove(filler);
  return verdict;
}

TEST_F(TrialPlacesTest, NoByteIsFree) {
  if (geteuid() != 0) {
    std::cout << "SKIPPED: places: a full disk needs root, to mount\n";
    GTEST_SKIP() << "needs root";
  }
  for (const char* const kind : {"forks", "mixed", "killed"}) {
    ASSERT_NO_FATAL_FAILURE(Make(kind));
    for (const DeletingVerb& verb : DeletingVerbs()) {
      const ModelState& state = known_.state;
      if (verb.name == "drop a branch" && state.branches.size() == 1) continue;
      if (verb.name == "untag" && state.tags.empty()) continue;
      for (const bool open_before : {true, false}) {
        Try(verb.name, open_before ? "open when it gets full" : "full before",
            "", 0, [&](std::vector<Verdict>* verdicts) {
              Verdict verdict = OnFullDisk(verb, open_before);
              if (verdict.faults != 0) verdicts->push_back(verdict);
              // With room again, what was acknowledged is there.
              verdicts->push_back(Judged(Disk(), Verb::kWrite, known_));
            });
      }
    }
  }
  Report("no byte is free");
}

// As a person meets it: the disk is full, and he asks the program.
TEST_F(TrialPlacesTest, NoByteIsFreeForTheProgram) {
  if (geteuid() != 0) {
    std::cout << "SKIPPED: places: a full disk needs root, to mount\n";
    GTEST_SKIP() << "needs root";
  }
  for (const char* const kind : {"forks", "mixed", "killed"}) {
    ASSERT_NO_FATAL_FAILURE(Make(kind));
    std::vector<std::int64_t> victims;
    for (const auto& [key, content] : known_.state.steps) {
      const bool tagged = std::any_of(
          known_.state.tags.begin(), known_.state.tags.end(),
          [&, step = key](const auto& tag) { return tag.second == step; });
      if (!known_.state.pins.contains(key) && !tagged && key < kBranchSteps) {
        victims.push_back(key);
      }
    }
    ASSERT_GE(victims.size(), 2);
    std::vector<std::string> commands = {absl::StrCat("rm -y ", victims[0])};
    Acknowledged after = known_;
    after.state.Delete(victims[0]);
    Try("rm", "the program", "", 0, [&](std::vector<Verdict>* verdicts) {
      verdicts->push_back(ProgramOnFullDisk(commands));
      verdicts->push_back(Judged(Disk(), Verb::kWrite, after));
    });
    // Each finds what the one before had to leave.
    commands.push_back("gc --full");
    commands.push_back(absl::StrCat("rm -y ", victims[1]));
    commands.push_back("gc");
    after.state.Delete(victims[1]);
    Try("rm, gc, rm, gc", "the program", "", 0,
        [&](std::vector<Verdict>* verdicts) {
          verdicts->push_back(ProgramOnFullDisk(commands));
          verdicts->push_back(Judged(Disk(), Verb::kWrite, after));
        });
    // One that changes nothing has the reserve, too, and must leave it.
    for (const char* const idle : {"!rm -y 987654", "!tag fresh 987654"}) {
      Try(idle, "the program", "", 0, [&](std::vector<Verdict>* verdicts) {
        verdicts->push_back(
            ProgramOnFullDisk({absl::StrCat("rm -y ", victims[0]), idle, idle,
                               absl::StrCat("rm -y ", victims[1]), "gc"}));
        verdicts->push_back(Judged(Disk(), Verb::kWrite, after));
      });
    }
    Try("gc", "the program", "", 0, [&](std::vector<Verdict>* verdicts) {
      verdicts->push_back(ProgramOnFullDisk({"gc --full"}));
      verdicts->push_back(Judged(Disk(), Verb::kWrite, known_));
    });
  }
  Report("no byte is free for the program");
}

// ---- files of another owner ----

class OwnersTest : public TrialPlacesTest {
 protected:
  // All is the owner's but for one file or folder, which is a stranger's; the
  // owner may not read it, or not write to it.
  void Lend(const std::string& name, bool readable) const {
    const fs::path store = directory_.store();
    WriteFiles(files_, {}, store);
    Give(directory_.path(), kOwner);
    for (const auto& entry : fs::recursive_directory_iterator(store)) {
      Give(entry.path(), kOwner);
    }
    Give(store, kOwner);
    const fs::path path = store / name;
    Give(path, kStranger);
    const unsigned folder = fs::is_directory(path) ? 0111 : 0;
    Must(chmod(path.c_str(), readable ? 0644 | folder : 0600) == 0);
  }
  static void Give(const fs::path& path, uid_t owner) {
    Must(chown(path.c_str(), owner, owner) == 0);
  }
  static void Must(bool good) {
    if (!good) std::abort();
  }

  // What becomes of the verb in a process of the owner's.
  Verdict AsOwner(Verb verb, const std::string& name) const {
    const TrialResult result = RunChild(
        [&](const TrialPipe& pipe) {
          Must(setgid(kOwner) == 0 && setuid(kOwner) == 0);
          DamagedStore damaged = {.files = nullptr, .known = &known_};
          damaged.damaged = {name};
          damaged.several = true;
          const Verdict verdict = Judge(damaged, directory_.path(), verb);
          pipe.Say(absl::StrFormat("IS %d %s", verdict.faults, verdict.text));
          _exit(0);
        },
        30);
    Verdict verdict;
    if (result.broken() || result.killed) {
      verdict.Add(result.signal == SIGALRM ? kHung : kAborted, "as owner");
    }
    for (const std::string& line : result.lines) {
      const std::vector<std::string> words =
          absl::StrSplit(line, absl::MaxSplits(' ', 2));
      verdict.faults |= static_cast<unsigned>(std::atoll(words[1].c_str()));
      verdict.text += words[2];
    }
    return verdict;
  }
};

TEST_F(OwnersTest, OneFileIsSomebodyElses) {
  if (geteuid() != 0) {
    std::cout << "SKIPPED: places: other owners need root\n";
    GTEST_SKIP() << "needs root";
  }
  ASSERT_NO_FATAL_FAILURE(Make("mixed"));
  std::vector<std::string> names(files_.directories.begin(),
                                 files_.directories.end());
  for (const auto& [name, bytes] : files_.bytes) names.push_back(name);
  for (const std::string& name : names) {
    for (const bool readable : {false, true}) {
      for (const Verb verb : {Verb::kRead, Verb::kOpen}) {
        Try(readable ? "may be read" : "may not be read", NamePattern(name),
            absl::StrCat(name, ", ", std::string(VerbName(verb))),
            kAllowedByName, [&](std::vector<Verdict>* verdicts) {
              Lend(name, readable);
              verdicts->push_back(AsOwner(verb, name));
              // The owner gets it back: nothing was lost.
              const fs::path path = fs::path(directory_.store()) / name;
              if (fs::exists(path)) {
                Give(path, kOwner);
                fs::permissions(path, fs::perms::owner_all);
              }
              Verdict after = AsOwner(Verb::kWrite, "");
              // None of that is allowed here.
              if (after.faults != 0) after.Add(kOther, "given back");
              verdicts->push_back(after);
            });
      }
    }
  }
  Report("other owners");
}

// ---- files that are huge, linked, or no files ----

class OddFilesTest : public TrialPlacesTest {
 protected:
  static constexpr std::uint64_t kHuge = std::uint64_t{2} << 30;

  void MakeOdd(const std::string& shape, const std::string& name) const {
    WriteFiles(files_, {}, directory_.store());
    const std::string path = directory_.store() + "/" + name;
    bool good = true;
    if (shape == "huge") {
      good = truncate(path.c_str(), static_cast<off_t>(kHuge)) == 0;
    } else if (shape == "linked") {
      good = link(path.c_str(), (directory_.path() + "/linked").c_str()) == 0;
    } else {
      good = unlink(path.c_str()) == 0;
      if (shape == "a pipe") good = good && mkfifo(path.c_str(), 0600) == 0;
      if (shape == "a folder") good = good && mkdir(path.c_str(), 0700) == 0;
      if (shape == "a link to itself") {
        good = good && symlink(path.c_str(), path.c_str()) == 0;
      }
    }
    if (!good) std::abort();
    // There is no memory to read one of those whole.
    const rlimit limit = {std::uint64_t{1} << 30, std::uint64_t{1} << 30};
    // The sanitizer's shadow is larger than any memory.
    if (!kAddressSanitizer && setrlimit(RLIMIT_AS, &limit) != 0) std::abort();
  }
};

TEST_F(OddFilesTest, EachFileInItsTurn) {
  ASSERT_NO_FATAL_FAILURE(Make("mixed"));
  for (const std::string shape :
       {"huge", "linked", "a pipe", "a folder", "a link to itself"}) {
    // Nothing but its length or its name is other than it was.
    const bool whole = shape == "huge" || shape == "linked";
    for (const auto& file : files_.bytes) {
      const std::string& name = file.first;
      // Two stores that have one LOCK are the same files: neither is written
      // to.
      const bool guards = shape == "linked" && name == "LOCK";
      for (const Verb verb : {Verb::kRead, Verb::kWrite, Verb::kRepair}) {
        unsigned allowed = whole && !guards ? kUnmended : kAllowedByName;
        // The other copy of such a file is not looked for: what it had is told
        // as a loss that nobody can tell.
        if (shape == "a folder" && verb == Verb::kRepair) allowed |= kOvertold;
        Try(shape, NamePattern(name),
            absl::StrCat(name, ", ", std::string(VerbName(verb))), allowed,
            [&](std::vector<Verdict>* verdicts) {
              MakeOdd(shape, name);
              DamagedStore damaged = {.files = nullptr, .known = &known_};
              damaged.damaged = {name};
              damaged.several = !whole || guards;
              fs::create_directory(directory_.path() + "/place");
              fs::rename(directory_.store(),
                         directory_.path() + "/place/store");
              verdicts->push_back(
                  Judge(damaged, directory_.path() + "/place", verb));
            });
        fs::remove_all(directory_.path());
        fs::create_directories(directory_.path());
      }
    }
  }
  Report("odd files");
}

// ---- sixteen programs that start at once ----

Verdict TrialPlacesTest::Start(const Acknowledged& known) const {
  int go[2];
  int said[2];
  if (pipe(go) != 0 || pipe(said) != 0) std::abort();
  std::vector<pid_t> starters;
  for (const auto& [key, content] : known.state.steps) {
    const pid_t pid = fork();
    if (pid == 0) {
      alarm(50);
      close(go[1]);
      // Until all of them are there.
      char c = 0;
      if (read(go[0], &c, 1) != 0) _exit(2);
      StoreOptions options;
      options.create_if_missing = true;
      options.lock_wait = absl::Seconds(40);
      options.threads = 1;
      options.log = [](LogSeverity, std::string_view, std::string_view) {};
      absl::StatusOr<Store> store =
          Store::Open(directory_.store(), std::move(options));
      absl::Status status = store.status();
      if (status.ok()) status = SaveStep(*store, key, *content);
      if (status.ok()) status = store->Close();
      if (!status.ok()) {
        TrialPipe(said[1]).Say(absl::StrCat(key, ": ", status.ToString()));
      }
      _exit(status.ok() ? 0 : 1);
    }
    starters.push_back(pid);
  }
  close(go[0]);
  close(go[1]);
  close(said[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(said[0], buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<std::size_t>(n));
  }
  Verdict verdict;
  for (const pid_t pid : starters) {
    int status = 0;
    waitpid(pid, &status, 0);
    if (WIFSIGNALED(status)) {
      verdict.Add(WTERMSIG(status) == SIGALRM ? kHung : kAborted, "a starter");
    } else if (WEXITSTATUS(status) != 0) {
      verdict.Add(kNoWrite, text);
    }
  }
  return verdict;
}

TEST_F(TrialPlacesTest, SixteenStarters) {
  kind_ = "new";
  for (int round = 0; round < Scaled(4); ++round) {
    fs::remove_all(directory_.path());
    fs::create_directories(directory_.path());
    FaultRandom random(static_cast<std::uint64_t>(round));
    Acknowledged known;
    for (int i = 0; i < kStarters; ++i) {
      known.state.Save(i, std::make_shared<const ModelStep>(SmallStep(random)));
    }
    Try("starters", "a new store", "", 0, [&](std::vector<Verdict>* verdicts) {
      verdicts->push_back(Start(known));
      verdicts->push_back(Judged(directory_.path(), Verb::kWrite, known));
    });
  }
  Report("starters");
}

}  // namespace
}  // namespace ckptree::testing
