// SPDX-License-Identifier: Apache-2.0

// A repair that is killed, or whose calls fail, at every step: the store is as
// it was, or repaired, or the next repair ends what was begun.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "core/repair/repair_on.h"
#include "core/repair/store_swap.h"
#include "gtest/gtest.h"
#include "tests/fault/random.h"
#include "tests/fault/scale.h"
#include "tests/model/store.h"
#include "tests/testutil/flip_byte.h"
#include "tests/trial/fixture.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;
using Mode = FaultPlan::Mode;

class TrialRepairTest : public TrialRulesTest {
 protected:
  void SetUp() override {
    ExpectRan(InStore(true, [&](Store& store, FaultFs&, const TrialPipe& pipe) {
      Must(SaveStep(store, 1, *small_[0]), "save 1", pipe);
      Must(SaveStep(store, 2, *large_[0]), "save 2", pipe);
      Must(SaveStep(store, 3, *large_[1]), "save 3", pipe);
      Must(store.Close(), "close", pipe);
    }));
    state_.Save(1, small_[0]);
    state_.Save(2, large_[0]);
    state_.Save(3, large_[1]);
  }

  std::string Beside(const std::string& suffix) const {
    return directory_.store() + suffix;
  }

  // Every try begins with the damage alone.
  void PutBack() {
    for (const auto& entry : fs::directory_iterator(directory_.path())) {
      if (entry.path().filename().string().starts_with("store")) {
        fs::remove_all(entry.path());
      }
    }
    CopyStore(directory_.path() + "/damaged", directory_.store());
  }

  // Says "DONE", or why not.
  TrialResult Repair(const std::vector<FaultPlan>& plans) {
    return RunChild([&](const TrialPipe& pipe) {
      auto file_system =
          std::make_shared<FaultFs>(directory_.scratch(), counts_.get());
      counts_->Reset();
      file_system->Arm(plans);
      RepairOptions options;
      options.execute = true;
      const auto report =
          internal::RepairOn(directory_.store(), options, file_system);
      pipe.Say(!report.ok() ? "FAILED " + report.status().ToString()
               : report->done ||
                       report->action == RepairReport::Action::kNothing
                   ? "DONE"
                   : "NOT DONE");
      _exit(0);
    });
  }

  // Damaged as before, or as good as new.
  bool OpensForWriting() {
    const TrialResult result = RunChild([&](const TrialPipe& pipe) {
      pipe.Say(OpenStore(directory_.store(), 1).ok() ? "OPENS" : "REFUSED");
    });
    EXPECT_FALSE(result.broken()) << result.Text();
    return !result.Said("OPENS").empty();
  }

  // Fails or dies at one call after the other until none is left.
  void Sweep(Mode mode, bool sticky, bool rebuilds) {
    int fired = 0, refused = 0, opened = 0;
    // An index made anew takes many calls, one much like the other.
    const auto stride =
        static_cast<std::uint64_t>(TrialStride()) * (rebuilds ? 1 : 5);
    for (std::uint64_t n = 1; n < 200; n += stride) {
      SCOPED_TRACE(
          absl::StrFormat("call %d, mode %d", n, static_cast<int>(mode)));
      PutBack();
      const TrialResult result =
          Repair({{.mode = mode, .at = n, .sticky = sticky, .seed = n}});
      ASSERT_FALSE(result.broken()) << result.Text();
      if (counts_->fired == 0) {
        EXPECT_EQ(result.Said("DONE").size(), 1u) << result.Text();
        break;
      }
      ++fired;
      const std::string at = counts_->FiredAt();
      if (fs::exists(directory_.store())) {
        ++(OpensForWriting() ? opened : refused);
      } else {
        ++refused;
      }
      // A second one, with nothing in its way.
      TrialResult again = Repair({});
      EXPECT_EQ(again.Said("DONE").size(), 1u) << at << ": " << again.Text();
      again = Repair({});
      EXPECT_EQ(again.Said("DONE").size(), 1u) << at << ": " << again.Text();
      ExpectStore({state_}, at);
      EXPECT_FALSE(fs::exists(Beside(".repairing"))) << at;
      EXPECT_EQ(fs::exists(Beside(".damaged")), rebuilds) << at;
      EXPECT_FALSE(fs::exists(Beside(".damaged.2"))) << at;
      if (HasFailure()) return;
    }
    EXPECT_GT(fired, WholeTrial() ? rebuilds ? 10 : 1 : 0);
    if (rebuilds) {
      EXPECT_GT(refused, 0);
    } else {
      EXPECT_EQ(refused, 0);
    }
    if (!sticky && WholeTrial()) {
      EXPECT_GT(opened, 0);
    }
  }

  void SweepAll(bool rebuilds) {
    fs::rename(directory_.store(), directory_.path() + "/damaged");
    PutBack();
    ASSERT_NE(OpensForWriting(), rebuilds) << "the damage did not fire";
    Sweep(Mode::kKill, false, rebuilds);
    Sweep(Mode::kFail, false, rebuilds);
    Sweep(Mode::kFail, true, rebuilds);
    Sweep(Mode::kPowerCut, false, rebuilds);
  }

  ModelState state_;
};

// What an open for writing mends by itself, a repair does, too: there is no
// call at which a store is left that does not open.
TEST_F(TrialRepairTest, TheIndexIsDamaged) {
  fs::remove(directory_.store() + "/db/CURRENT");
  SweepAll(/*rebuilds=*/false);
}

// Then only the index has the rows, and no open trusts it with that.
TEST_F(TrialRepairTest, TheJournalIsGone) {
  fs::remove_all(directory_.store() + "/journal");
  SweepAll(/*rebuilds=*/true);
}

// The file system of a test cannot exchange names, so the state that a kill
// leaves right behind an exchange is made by hand.
TEST_F(TrialRepairTest, KilledBehindAnExchange) {
  fs::remove_all(directory_.store() + "/journal");
  fs::rename(directory_.store(), directory_.path() + "/damaged");
  PutBack();
  const auto at_rename =
      FaultPlan{.mode = Mode::kKill, .at = 1, .kinds = Bit(CallKind::kRename)};
  ASSERT_TRUE(Repair({at_rename}).killed);
  const std::string made = Beside(".repairing/store");
  ASSERT_TRUE(fs::exists(made));
  fs::rename(directory_.store(), directory_.path() + "/x");
  fs::rename(made, directory_.store());
  fs::rename(directory_.path() + "/x", made);
  EXPECT_TRUE(OpensForWriting());
  // One that waited for the store does not take the damaged one for its own
  // leftovers.
  EXPECT_TRUE(absl::IsAborted(
      internal::StoreSwap::Tidy(kv::Options(), directory_.store())));
  EXPECT_TRUE(fs::exists(made + "/db"));
  EXPECT_EQ(Repair({}).Said("DONE").size(), 1u);
  ExpectStore({state_});
  EXPECT_FALSE(fs::exists(Beside(".repairing")));
  EXPECT_TRUE(fs::exists(Beside(".damaged/db")));
  EXPECT_FALSE(fs::exists(Beside(".damaged/journal")));
}

// A trainer made a new store where the damaged one had been moved away: neither
// is touched.
TEST_F(TrialRepairTest, SomethingElseTookThePlace) {
  fs::remove_all(directory_.store() + "/journal");
  fs::rename(directory_.store(), directory_.path() + "/damaged");
  PutBack();
  const auto at_rename =
      FaultPlan{.mode = Mode::kKill, .at = 2, .kinds = Bit(CallKind::kRename)};
  ASSERT_TRUE(Repair({at_rename}).killed);
  ASSERT_FALSE(fs::exists(directory_.store()));
  ExpectRan(InStore(true, [](Store&, FaultFs&, const TrialPipe&) {}));
  const std::vector<std::string> said = Repair({}).Said("FAILED");
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("something else took its place"), std::string::npos);
  EXPECT_TRUE(fs::exists(Beside(".repairing/store/db")));
  EXPECT_TRUE(fs::exists(Beside(".repairing/damaged/db")));
  fs::remove_all(directory_.store());
  EXPECT_EQ(Repair({}).Said("DONE").size(), 1u);
  ExpectStore({state_});
}

class DamagedFileTest : public TrialRepairTest {
 protected:
  // Repairs the store as it is, and holds what is left against the report, and
  // the report against the model. Says "NONE" where nothing could be kept.
  TrialResult RepairAndJudge() {
    return RunChild([&](const TrialPipe& pipe) {
      RepairOptions options;
      options.execute = true;
      const auto report = ckptree::Repair(directory_.store(), options);
      if (absl::IsDataLoss(report.status())) {
        pipe.Say("NONE");
        _exit(0);
      }
      Must(report.status(), "repair", pipe);
      absl::StatusOr<Store> store = OpenStore(directory_.store(), 1);
      Must(store.status(), "open", pipe);
      Must(store->Info().warnings.empty(), "it warns", pipe);
      Must(store->Steps()->size() == report->steps_kept(), "steps", pipe);
      const auto findings = DeepFindings(*store);
      Must(!findings.has_value(), findings.value_or(""), pipe);
      for (const RecoveredStep& step : report->steps) {
        if (!step.saved || !step.lost.empty()) continue;
        const auto wrong =
            StepDifference(*store, step.step, *state_.steps.at(step.step));
        Must(!wrong.has_value(), wrong.value_or(""), pipe);
      }
      if (report->complete()) {
        const auto wrong = StateDifference(*store, state_);
        Must(!wrong.has_value(),
             "told that nothing is lost: " + wrong.value_or(""), pipe);
      }
      Must(SaveStep(*store, 1000, *small_[5]), "a save", pipe);
      Must(store->Close(), "close", pipe);
      pipe.Say(report->action == RepairReport::Action::kNothing ? "HARMLESS"
               : report->action == RepairReport::Action::kMend  ? "MENDED"
                                                                : "REBUILT");
      _exit(0);
    });
  }

  // Each file of <directory>/damaged in its turn: gone, cut, zeroed, flipped.
  void DamageAll() {
    const std::string whole = directory_.path() + "/damaged";
    std::vector<std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(whole)) {
      if (entry.is_regular_file()) {
        files.push_back(fs::relative(entry.path(), whole).string());
      }
    }
    FaultRandom random(17);
    for (const std::string& file : files) {
      const std::uint64_t size = fs::file_size(whole + "/" + file);
      const int positions = size == 0 ? 0 : 6;
      for (int way = 0; way < 3 + 2 * positions; ++way) {
        if (++tries_ % TrialStride() != 0) continue;
        PutBack();
        const std::string path = directory_.store() + "/" + file;
        const std::uint64_t at = size == 0
                                     ? 0
                                     : static_cast<std::uint64_t>(
                                           random.Int(static_cast<int>(size)));
        if (way == 0) {
          fs::remove(path);
        } else if (way == 1) {
          fs::resize_file(path, 0);
        } else if (way == 2) {
          fs::resize_file(path, size - std::min<std::uint64_t>(size, 9));
        } else if (way < 3 + positions) {
          FlipByte(path, at);
        } else {
          std::fstream(path, std::ios::in | std::ios::out | std::ios::binary)
              .seekp(static_cast<std::streamoff>(at))
              .write(std::string(512, '\0').data(),
                     static_cast<std::streamsize>(
                         std::min<std::uint64_t>(512, size - at)));
        }
        const TrialResult result = RepairAndJudge();
        ASSERT_FALSE(result.broken())
            << file << " way " << way << " at " << at << ": " << result.Text();
        for (const std::string& line : result.lines) ++outcomes_[line];
      }
    }
  }

  std::map<std::string, int> outcomes_;
  int tries_ = 0;
};

TEST_F(DamagedFileTest, WhatIsKeptIsWhatWasSaved) {
  fs::rename(directory_.store(), directory_.path() + "/damaged");
  DamageAll();
  // Once more with its rows in tables, and a log.
  PutBack();
  ExpectRan(InStore(false, [&](Store& store, FaultFs&, const TrialPipe& pipe) {
    Must(SaveStep(store, 4, *small_[1]), "save 4", pipe);
    Must(SaveStep(store, 5, *large_[2]), "save 5", pipe);
    // As if killed.
  }));
  state_.Save(4, small_[1]);
  state_.Save(5, large_[2]);
  fs::remove_all(directory_.path() + "/damaged");
  fs::rename(directory_.store(), directory_.path() + "/damaged");
  DamageAll();
  for (const char* outcome : {"HARMLESS", "MENDED", "REBUILT"}) {
    EXPECT_GT(outcomes_[outcome], WholeTrial() ? 20 : 0) << outcome;
  }
  std::string text;
  for (const auto& [outcome, count] : outcomes_) {
    absl::StrAppendFormat(&text, "%s %d  ", outcome, count);
  }
  RecordProperty("outcomes", text);
  std::cout << text << "\n";
}

}  // namespace
}  // namespace ckptree::testing
