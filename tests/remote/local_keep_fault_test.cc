// SPDX-License-Identifier: Apache-2.0

// While segments leave a disk, and come back, its process is killed, or its
// calls fail, at one call after the other: each step is read here, with the
// remote, and by its address, and nothing has neither a file nor an object.

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "ckptree/ckptree.h"
#include "gtest/gtest.h"
#include "tests/fault/fs.h"
#include "tests/fault/plan.h"
#include "tests/fault/runner.h"
#include "tests/fault/scale.h"
#include "tests/remote/fixture.h"
#include "tests/testutil/store_on.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;
using Mode = FaultPlan::Mode;

constexpr std::size_t kLargeSave = 2 << 20;
constexpr std::int64_t kSteps = 3;
constexpr int kNoRoom = 28;  // ENOSPC

// Children open the stores: this process has one thread.
class LocalKeepFaultTest : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("XDG_CACHE_HOME", std::string(folder_ / "cache").c_str(), 1);
    fs::create_directory(folder_ / "bucket");
  }

  StoreOptions Remote(std::optional<Preservation> keep) const {
    StoreOptions options =
        RemoteOptions("file://" + std::string(folder_ / "bucket"));
    options.local_keep = std::move(keep);
    // On a full disk nothing is noted, so nothing is shipped.
    options.remote_timeout = absl::Seconds(2);
    return options;
  }
  // Saves all steps, and what stands then is where each trial begins.
  void Save(const std::optional<Preservation>& keep) {
    const TrialResult saved = RunChild([&](const TrialPipe& pipe) {
      Store store = Store::Open(folder_ / "run", Remote(keep)).value();
      for (std::int64_t step = 1; step <= kSteps; ++step) {
        SaveStep(store, step, kLargeSave);
      }
      pipe.Say(store.Close().ok() ? "SAVED" : "FAILED");
    });
    ASSERT_EQ(saved.Said("SAVED").size(), 1u) << saved.Text();
    for (const std::string name : {"run", "bucket"}) {
      fs::rename(folder_ / name, folder_ / ("first-" + name));
    }
  }
  void PutBack() {
    for (const std::string name : {"run", "bucket"}) {
      fs::remove_all(std::string(folder_ / name));
      fs::copy(folder_ / ("first-" + name), folder_ / name,
               fs::copy_options::recursive);
    }
  }

  // Opens it with that policy and closes it. Says "CLOSED", or why not.
  TrialResult Open(const Preservation& keep,
                   const std::vector<FaultPlan>& plans) {
    return RunChild([&](const TrialPipe& pipe) {
      auto file_system = std::make_shared<FaultFs>("", counts_.get());
      counts_->Reset();
      file_system->Arm(plans);
      absl::StatusOr<Store> store =
          OpenStoreOn(file_system, folder_ / "run", Remote(keep));
      const absl::Status closed = store.ok() ? store->Close() : store.status();
      pipe.Say(closed.ok() ? "CLOSED" : "FAILED " + closed.ToString());
      _exit(0);
    });
  }

  // `crashed`: what the next open for writing mends is no fault.
  static std::string WhatIsWrong(absl::StatusOr<Store> store, bool crashed) {
    if (!store.ok()) return store.status().ToString();
    for (std::int64_t step = 1; step <= kSteps; ++step) {
      const absl::StatusOr<Step> opened = store->OpenStep(step);
      if (!opened.ok()) return opened.status().ToString();
      Bytes bytes(kLargeSave);
      const absl::Status read = opened->Read("params/w", std::span(bytes));
      if (!read.ok()) return read.ToString();
      if (bytes != RandomBytes(kLargeSave, step)) return "other bytes";
    }
    if (!crashed && !store->Info().warnings.empty()) {
      return store->Info().warnings[0];
    }
    const absl::StatusOr<VerifyReport> report =
        store->Verify({.level = VerifyOptions::Level::kDeep});
    if (!report.ok()) return report.status().ToString();
    for (const Finding& finding : report->findings) {
      if (!crashed || finding.severity != Finding::Severity::kWarning) {
        return finding.what;
      }
    }
    return "";
  }
  // Read by who has the directory, and by who has the address. Says "WHOLE", or
  // what is not.
  TrialResult Read(bool crashed) {
    return RunChild([&](const TrialPipe& pipe) {
      StoreOptions reads = QuietOptions();
      reads.create_if_missing = false;
      reads.read_only = true;
      std::string wrong =
          WhatIsWrong(Store::Open(folder_ / "run", reads), crashed);
      if (wrong.empty()) {
        wrong = WhatIsWrong(Store::Open(Remote(std::nullopt).remote, reads),
                            /*crashed=*/false);
        if (!wrong.empty()) wrong = "by its address: " + wrong;
      }
      pipe.Say(wrong.empty() ? "WHOLE" : "NOT " + wrong);
      _exit(0);
    });
  }
  std::uint64_t BytesHere() const {
    std::uint64_t bytes = 0;
    for (const auto& entry :
         fs::directory_iterator(std::string(folder_ / "run/db"))) {
      if (entry.path().extension() == ".sst" &&
          entry.file_size() > kLargeSave / 16) {
        bytes += entry.file_size();
      }
    }
    return bytes;
  }

  void Sweep(const Preservation& keep, Mode mode, bool sticky, int error) {
    int fired = 0, gone = 0, stayed = 0;
    const auto stride = static_cast<std::uint64_t>(CallStride());
    std::uint64_t n = 1;
    for (; n < 1000; n += stride) {
      SCOPED_TRACE(absl::StrFormat("call %d, mode %d, error %d", n,
                                   static_cast<int>(mode), error));
      PutBack();
      const TrialResult result = Open(keep, {{.mode = mode,
                                              .at = n,
                                              .error = error,
                                              .sticky = sticky,
                                              .seed = n}});
      ASSERT_FALSE(result.broken()) << result.Text();
      if (counts_->fired == 0) {
        EXPECT_EQ(result.Said("CLOSED").size(), 1u) << result.Text();
        break;
      }
      ++fired;
      const std::string at = counts_->FiredAt();
      (BytesHere() < 2 * kLargeSave ? gone : stayed) += 1;
      TrialResult read = Read(/*crashed=*/true);
      ASSERT_EQ(read.Said("WHOLE").size(), 1u) << at << read.Text();
      const TrialResult again = Open(keep, {});
      ASSERT_EQ(again.Said("CLOSED").size(), 1u) << at << again.Text();
      read = Read(/*crashed=*/false);
      ASSERT_EQ(read.Said("WHOLE").size(), 1u) << at << read.Text();
    }
    EXPECT_LT(n, 1000u);
    EXPECT_GT(fired, 5);
    // On both sides of the drop.
    EXPECT_GT(gone, 0);
    EXPECT_GT(stayed, 0);
    absl::PrintF(
        "trial remote, file, local_keep, mode %d, error %d: %d trials, %d "
        "fired, 0 lost (%d behind a drop)\n",
        static_cast<int>(mode), error, fired, fired, gone);
  }

 private:
  TempDir folder_;
  SharedFaultCounts counts_;
};

TEST_F(LocalKeepFaultTest, KilledAtEachCallWhileSegmentsLeave) {
  Save(std::nullopt);
  Sweep(LatestN{1}, Mode::kKill, /*sticky=*/false, 0);
}

TEST_F(LocalKeepFaultTest, EachCallFailsWhileSegmentsLeave) {
  Save(std::nullopt);
  Sweep(LatestN{1}, Mode::kFail, /*sticky=*/false, 5);
}

TEST_F(LocalKeepFaultTest, FullFromEachCallOnWhileSegmentsLeave) {
  Save(std::nullopt);
  Sweep(LatestN{1}, Mode::kFail, /*sticky=*/true, kNoRoom);
}

TEST_F(LocalKeepFaultTest, KilledAtEachCallWhileTheyComeBack) {
  Save(LatestN{1});
  Sweep(PreserveAll{}, Mode::kKill, /*sticky=*/false, 0);
}

TEST_F(LocalKeepFaultTest, EachCallFailsWhileTheyComeBack) {
  Save(LatestN{1});
  Sweep(PreserveAll{}, Mode::kFail, /*sticky=*/false, 5);
}

}  // namespace
}  // namespace ckptree::testing
