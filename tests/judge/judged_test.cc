// SPDX-License-Identifier: Apache-2.0

// Damage at rest, judged by the model: exit 0 and no word where everything that
// was acknowledged is there, bit by bit; else precisely what the damage hit is
// named, and nothing else is gone. Damage hits leaves only where their bytes
// stand, which is found by looking for them in the files; anywhere else it may
// cost nothing at all.
//
//   CKPTREE_TEST_TRIALS=25     of every shape for every class of files
//   CKPTREE_TEST_EVERY_BYTE=1  and each byte of the small kinds of stores, each
//                              4 KiB of the others
//   CKPTREE_TEST_SCALE=0.1     every tenth alone
//   CKPTREE_TEST_SHAPE=flip    those of a shape alone, as the table names it
//   CKPTREE_TEST_TABLE=1       the counts of each kind, shape and class, also
//                              where nothing is wrong
//   CKPTREE_TEST_SHOWN=1000    failures that are printed
//   CKPTREE_TEST_STORES=DIR    stores are kept there, and used again
//   CKPTREE_TEST_ONE='...'     a trial alone, as a failure prints it

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "tests/fault/directory.h"
#include "tests/fault/random.h"
#include "tests/fault/runner.h"
#include "tests/fault/scale.h"
#include "tests/judge/files.h"
#include "tests/judge/kinds.h"
#include "tests/judge/payload.h"
#include "tests/judge/plan.h"
#include "tests/judge/table.h"
#include "tests/judge/verbs.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBatch = 100;  // Trials of one child.
constexpr unsigned kSeconds = 40;    // That a verb may take.
constexpr int kCommandsEach = 16;    // Every so manieth trial asks the program.

const char* Wanted(const char* name) { return std::getenv(name); }

int TrialsEach() {
  const char* const wanted = Wanted("CKPTREE_TEST_TRIALS");
  return wanted == nullptr ? 1 : std::atoi(wanted);
}

// Failures of a kind of store that are printed.
std::size_t Shown() {
  const char* const wanted = Wanted("CKPTREE_TEST_SHOWN");
  return wanted == nullptr ? 12 : std::strtoull(wanted, nullptr, 10);
}

class TrialJudgedTest : public ::testing::TestWithParam<std::string> {
 protected:
  static constexpr std::uint64_t kSeedOfStores = 20261122;

  // A store of the kind, its files now and earlier, and where payload stands.
  // Trials are made where it was made: it is no copy of itself.
  void Make() {
    const char* const kept = Wanted("CKPTREE_TEST_STORES");
    const std::string place = absl::StrCat(
        kept == nullptr ? directory_.path() : kept, "/", GetParam());
    folder_ = place + "/trial";
    const bool before = fs::exists(place + "/files");
    fs::create_directories(folder_);
    MadeStore made =
        MakeKind(GetParam(), kSeedOfStores, before ? "" : folder_ + "/store",
                 place + "/earlier");
    ASSERT_EQ(made.error, "");
    if (!before) CopyStore(folder_ + "/store", place + "/files");
    known_ = std::move(made.known);
    files_ = ReadFiles(place + "/files");
    earlier_ = ReadFiles(place + "/earlier");
    inode_ = InodeOf(folder_ + "/store");
    payload_ = std::make_unique<PayloadMap>(files_, known_);
    ASSERT_EQ(payload_->unfound(), 0u) << "leaves are not in the files";
  }

  DamagedStore Damage(const std::vector<Change>& changes) const {
    Damaged damaged = Apply(files_, earlier_, changes);
    DamagedStore store = {.files = &files_, .known = &known_};
    EXPECT_TRUE(changes.empty() || damaged.fired);
    store.changed = std::move(damaged.files);
    for (const auto& [name, bytes] : store.changed) {
      store.damaged.push_back(name);
    }
    store.may_be_lost = payload_->MayBeLost(damaged.hits);
    store.several = changes.size() > 1;
    return store;
  }

  // Of the shape that was asked for, as many as the scale says.
  static std::vector<PlannedTrial> Part(std::vector<PlannedTrial> all) {
    if (const char* const shape = Wanted("CKPTREE_TEST_SHAPE")) {
      std::erase_if(
          all, [&](const PlannedTrial& trial) { return trial.shape != shape; });
    }
    std::vector<PlannedTrial> part;
    const auto stride = static_cast<std::size_t>(TrialStride());
    for (std::size_t i = TrialSeed() % stride; i < all.size(); i += stride) {
      part.push_back(all[i]);
    }
    return part;
  }

  static std::vector<Verb> VerbsOf(std::size_t trial, bool few) {
    std::vector<Verb> verbs = {Verb::kRead, Verb::kWrite};
    if (few) return verbs;
    verbs.insert(verbs.end(), {Verb::kVerify, Verb::kRecover, Verb::kRepair});
    if (trial % kCommandsEach == 3) {
      verbs.insert(verbs.end(), {Verb::kVerifyCommand, Verb::kRecoverCommand,
                                 Verb::kRepairCommand});
    }
    return verbs;
  }

  // Says "AT trial verb" before and "IS trial verb faults text" after each.
  void Child(const std::vector<PlannedTrial>& plan, std::size_t from,
             std::size_t to, std::size_t from_verb, bool few,
             const TrialPipe& pipe) const {
    for (std::size_t i = from; i < to; ++i) {
      const DamagedStore damaged = Damage(plan[i].changes);
      const std::vector<Verb> verbs = VerbsOf(i, few);
      for (std::size_t v = i == from ? from_verb : 0; v < verbs.size(); ++v) {
        pipe.Say(absl::StrFormat("AT %d %d", i, v));
        alarm(kSeconds);
        const Verdict verdict = Judge(damaged, folder_, verbs[v]);
        pipe.Say(absl::StrFormat("IS %d %d %d %s", i, v, verdict.faults,
                                 verdict.text));
      }
    }
  }

  void Note(const PlannedTrial& trial, Verb verb, unsigned wrong,
            const std::string& text) {
    if (wrong == 0 || shown_.size() >= Shown()) return;
    const std::string like =
        absl::StrCat(trial.where, "|", trial.shape, "|", wrong);
    if (!shown_.insert(like).second) return;
    std::string one = "kind=" + GetParam();
    for (const Change& change : trial.changes) {
      absl::StrAppend(&one, "; ", change.Text());
    }
    failures_ += absl::StrFormat("  %s: %s\n    CKPTREE_TEST_ONE='%s'\n",
                                 VerbName(verb), text.substr(0, 700), one);
  }

  // In children of many trials each, which may die.
  void Try(const std::vector<PlannedTrial>& plan, bool few) {
    std::vector<unsigned> faults(plan.size());
    std::size_t next = 0;
    std::size_t verb = 0;
    while (next < plan.size()) {
      const std::size_t end = std::min(plan.size(), next + kBatch);
      const TrialResult result = RunChild(
          // What is thrown ends the child.
          [&](const TrialPipe& pipe) noexcept {
            Child(plan, next, end, verb, few, pipe);
            _exit(0);
          },
          kSeconds);
      std::size_t at = next;
      std::size_t at_verb = 0;
      for (const std::string& line : result.lines) {
        const std::vector<std::string> words =
            absl::StrSplit(line, absl::MaxSplits(' ', 4));
        at = static_cast<std::size_t>(std::atoll(words[1].c_str()));
        at_verb = static_cast<std::size_t>(std::atoll(words[2].c_str()));
        if (words[0] != "IS") continue;
        Tell(plan[at], VerbsOf(at, few)[at_verb],
             static_cast<unsigned>(std::atoll(words[3].c_str())), words[4],
             &faults[at]);
      }
      if (result.exited && result.code == 0) {
        next = end;
        verb = 0;
        continue;
      }
      Tell(plan[at], VerbsOf(at, few)[at_verb],
           result.signal == SIGALRM ? kHung : kAborted,
           absl::StrFormat("signal %d, exit code %d", result.signal,
                           result.code),
           &faults[at]);
      next = at;
      verb = at_verb + 1;
      if (verb == VerbsOf(at, few).size()) {
        ++next;
        verb = 0;
      }
      PutBack(folder_, inode_);
    }
    for (std::size_t i = 0; i < plan.size(); ++i) {
      table_.Add(GetParam(), plan[i].shape, plan[i].where, faults[i],
                 Bad(plan[i], faults[i]));
    }
  }

  static unsigned Bad(const PlannedTrial& trial, unsigned faults) {
    return faults & ~(trial.changes.size() > 1 ? kAllowedByName : kUnmended);
  }
  void Tell(const PlannedTrial& trial, Verb verb, unsigned faults,
            const std::string& text, unsigned* sum) {
    *sum |= faults;
    Note(trial, verb, Bad(trial, faults), text);
  }

  // The table where somebody asks for it, or something is wrong; what is wrong
  // comes before it, as a long output is shown without its middle.
  void Report() {
    const bool whole = Wanted("CKPTREE_TEST_TABLE") != nullptr;
    EXPECT_EQ(table_.wrong(), 0) << "the first of each sort:\n" << failures_;
    if (whole || table_.wrong() != 0) std::cout << table_.Text(whole);
    std::cout << "trial judged, " << GetParam() << ": " << table_.Summary()
              << "\n"
              << std::flush;
  }

  TrialDirectory directory_;
  Acknowledged known_;
  StoreFiles files_;
  StoreFiles earlier_;
  std::unique_ptr<PayloadMap> payload_;
  JudgeTable table_;
  std::string folder_;
  std::uint64_t inode_ = 0;
  std::set<std::string> shown_;
  std::string failures_;
};

// The judge itself: it has nothing to say of a store that is whole.
TEST_P(TrialJudgedTest, Undamaged) {
  ASSERT_NO_FATAL_FAILURE(Make());
  PlannedTrial whole = {.changes = {}, .shape = "none", .where = "nothing"};
  Try(std::vector<PlannedTrial>(4, whole), /*few=*/false);
  Report();
}

TEST_P(TrialJudgedTest, Damaged) {
  ASSERT_NO_FATAL_FAILURE(Make());
  if (const char* const one = Wanted("CKPTREE_TEST_ONE")) {
    std::vector<std::string> parts = absl::StrSplit(one, "; ");
    if (parts[0] != "kind=" + GetParam()) GTEST_SKIP();
    PlannedTrial trial = {.changes = {}, .shape = "one", .where = "one"};
    for (std::size_t i = 1; i < parts.size(); ++i) {
      const std::optional<Change> change = ParseChange(parts[i]);
      ASSERT_TRUE(change.has_value()) << parts[i];
      trial.changes.push_back(*change);
    }
    // The fourth asks the program, too.
    Try(std::vector<PlannedTrial>(4, trial), /*few=*/false);
    Report();
    return;
  }
  Try(Part(Plan(files_, earlier_, *payload_, TrialSeed(), TrialsEach())),
      /*few=*/false);
  Report();
}

TEST_P(TrialJudgedTest, EveryByte) {
  static const std::set<std::string> kSmall = {"small", "forks", "killed"};
  if (Wanted("CKPTREE_TEST_EVERY_BYTE") == nullptr) {
    GTEST_SKIP() << "$CKPTREE_TEST_EVERY_BYTE is not set";
  }
  ASSERT_NO_FATAL_FAILURE(Make());
  Try(Part(kSmall.contains(GetParam())
               ? EveryByte(files_, *payload_, TrialSeed())
               : EverySector(files_, *payload_, TrialSeed())),
      /*few=*/true);
  Report();
}

INSTANTIATE_TEST_SUITE_P(Kinds, TrialJudgedTest,
                         ::testing::ValuesIn(KindNames()),
                         [](const ::testing::TestParamInfo<std::string>& kind) {
                           return kind.param;
                         });

}  // namespace
}  // namespace ckptree::testing
