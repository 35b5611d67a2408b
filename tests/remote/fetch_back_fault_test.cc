// SPDX-License-Identifier: Apache-2.0

// An open that fetches segments back is killed, or its calls fail, at one call
// after the other: the next one has all of them.

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
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
class FetchBackFaultTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(folder_ / "bucket");
    const TrialResult saved = RunChild([&](const TrialPipe& pipe) {
      Store store = Store::Open(folder_ / "run", Remote()).value();
      for (std::int64_t step = 1; step <= kSteps; ++step) {
        SaveStep(store, step, kLargeSave);
      }
      pipe.Say(store.Close().ok() ? "SAVED" : "FAILED");
    });
    ASSERT_EQ(saved.Said("SAVED").size(), 1u) << saved.Text();
    std::vector<fs::path> segments;
    for (const auto& entry :
         fs::directory_iterator(std::string(folder_ / "run/db"))) {
      if (entry.path().extension() == ".sst" &&
          entry.file_size() > kLargeSave / 2) {
        segments.push_back(entry.path());
      }
    }
    std::sort(segments.begin(), segments.end());
    ASSERT_GE(segments.size(), 2u);
    fs::remove(segments[0]);
    fs::resize_file(segments[1], fs::file_size(segments[1]) / 2);
    for (const std::string name : {"run", "bucket"}) {
      fs::rename(folder_ / name, folder_ / ("first-" + name));
    }
  }

  StoreOptions Remote() const {
    return RemoteOptions("file://" + std::string(folder_ / "bucket"));
  }

  void PutBack() {
    for (const std::string name : {"run", "bucket"}) {
      fs::remove_all(std::string(folder_ / name));
      fs::copy(folder_ / ("first-" + name), folder_ / name,
               fs::copy_options::recursive);
    }
  }

  // Says "OPENED", or why not.
  TrialResult Open(const std::vector<FaultPlan>& plans) {
    return RunChild([&](const TrialPipe& pipe) {
      auto file_system = std::make_shared<FaultFs>("", counts_.get());
      counts_->Reset();
      file_system->Arm(plans);
      absl::StatusOr<Store> store =
          OpenStoreOn(file_system, folder_ / "run", Remote());
      pipe.Say(store.ok() ? "OPENED" : "FAILED " + store.status().ToString());
      _exit(0);
    });
  }

  // Says "WHOLE", or what is not.
  TrialResult Read(bool remote) {
    return RunChild([&](const TrialPipe& pipe) {
      const auto whole = [&]() -> std::string {
        absl::StatusOr<Store> store =
            Store::Open(folder_ / "run", remote ? Remote() : QuietOptions());
        if (!store.ok()) return store.status().ToString();
        for (std::int64_t step = 1; step <= kSteps; ++step) {
          const absl::StatusOr<Step> opened = store->OpenStep(step);
          if (!opened.ok()) return opened.status().ToString();
          Bytes bytes(kLargeSave);
          const absl::Status read = opened->Read("params/w", std::span(bytes));
          if (!read.ok()) return read.ToString();
          if (bytes != RandomBytes(kLargeSave, step)) return "other bytes";
        }
        if (!store->Info().warnings.empty()) return store->Info().warnings[0];
        const absl::StatusOr<VerifyReport> report =
            store->Verify({.level = VerifyOptions::Level::kDeep});
        if (!report.ok()) return report.status().ToString();
        return report->findings.empty() ? "" : report->findings[0].what;
      };
      const std::string fault = whole();
      pipe.Say(fault.empty() ? "WHOLE" : "NOT " + fault);
      _exit(0);
    });
  }

  void Sweep(Mode mode, bool sticky, int error) {
    int fired = 0;
    const auto stride = static_cast<std::uint64_t>(CallStride());
    std::uint64_t n = 1;
    for (; n < 1000; n += stride) {
      SCOPED_TRACE(absl::StrFormat("call %d, mode %d, error %d", n,
                                   static_cast<int>(mode), error));
      PutBack();
      const TrialResult result = Open({{.mode = mode,
                                        .at = n,
                                        .error = error,
                                        .sticky = sticky,
                                        .seed = n}});
      ASSERT_FALSE(result.broken()) << result.Text();
      if (counts_->fired == 0) {
        EXPECT_EQ(result.Said("OPENED").size(), 1u) << result.Text();
        break;
      }
      ++fired;
      const std::string at = counts_->FiredAt();
      const TrialResult again = Open({});
      ASSERT_EQ(again.Said("OPENED").size(), 1u) << at << again.Text();
      const TrialResult read = Read(/*remote=*/false);
      ASSERT_EQ(read.Said("WHOLE").size(), 1u) << at << read.Text();
    }
    EXPECT_LT(n, 1000u);
    EXPECT_GT(fired, 3);
    absl::PrintF(
        "trial remote, file, fetching back, mode %d, error %d: %d trials, %d "
        "fired, 0 lost\n",
        static_cast<int>(mode), error, fired, fired);
  }

 private:
  TempDir folder_;
  SharedFaultCounts counts_;
};

TEST_F(FetchBackFaultTest, KilledAtEachCall) {
  Sweep(Mode::kKill, /*sticky=*/false, 0);
}

TEST_F(FetchBackFaultTest, EachCallFails) {
  Sweep(Mode::kFail, /*sticky=*/false, 5);
}

TEST_F(FetchBackFaultTest, FullFromEachCallOn) {
  Sweep(Mode::kFail, /*sticky=*/true, kNoRoom);
}

}  // namespace
}  // namespace ckptree::testing
