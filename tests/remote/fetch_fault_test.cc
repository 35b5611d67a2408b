// SPDX-License-Identifier: Apache-2.0

// An open that fetches the whole store into a folder that has files of others:
// killed, failing, full, and the power cut at one call after the other. What
// is there then is the store, or none; the next open knows the takeover for its
// own and has all steps, and the files of others stay.

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "ckptree/ckptree.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"
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

constexpr std::int64_t kSteps = 3;
constexpr std::uint64_t kMostCalls = 2000;
constexpr int kNoRoom = 28;  // ENOSPC

std::size_t SizeOf(std::int64_t step) {
  return step % 2 == 0 ? std::size_t{4} << 10 : std::size_t{2} << 20;
}

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Children open the stores: this process has one thread.
class FetchFaultTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(folder_ / "bucket");
    fs::create_directory(folder_ / "scratch");
    const TrialResult saved = RunChild([&](const TrialPipe& pipe) {
      Store store = Store::Open(folder_ / "first", Remote()).value();
      for (std::int64_t step = 1; step <= kSteps; ++step) {
        SaveStep(store, step, SizeOf(step));
      }
      pipe.Say(store.Close().ok() ? "SAVED" : "FAILED");
    });
    ASSERT_EQ(saved.Said("SAVED").size(), 1u) << saved.Text();
    fs::rename(folder_ / "bucket", folder_ / "first-bucket");
  }

  StoreOptions Remote() const {
    return RemoteOptions("file://" + std::string(folder_ / "bucket"));
  }

  // A folder with files of others; the objects as they were.
  void PutBack() {
    for (const std::string name : {"run", "bucket"}) {
      fs::remove_all(std::string(folder_ / name));
    }
    fs::copy(folder_ / "first-bucket", folder_ / "bucket",
             fs::copy_options::recursive);
    fs::create_directories(folder_ / "run/logs");
    std::ofstream(folder_ / "run/logs/events") << "of others";
    std::ofstream(folder_ / "run/config.yaml") << "lr: 1";
    fs::create_symlink("/nowhere", folder_ / "run/latest");
  }
  std::string OthersFault() const {
    if (TextOf(folder_ / "run/logs/events") != "of others") return "logs";
    if (TextOf(folder_ / "run/config.yaml") != "lr: 1") return "config.yaml";
    if (fs::read_symlink(folder_ / "run/latest") != "/nowhere") return "latest";
    return "";
  }

  // Says "OPENED", or why not.
  TrialResult Open(const std::vector<FaultPlan>& plans, bool power) {
    return RunChild([&](const TrialPipe& pipe) {
      auto file_system = std::make_shared<FaultFs>(
          power ? std::string(folder_ / "scratch") : "", counts_.get());
      counts_->Reset();
      file_system->Arm(plans);
      absl::StatusOr<Store> store =
          OpenStoreOn(file_system, folder_ / "run", Remote());
      absl::Status status = store.status();
      // Of one that is not closed the second copy of the journal may be behind.
      if (store.ok() && plans.empty()) status = store->Close();
      pipe.Say(status.ok() ? "OPENED" : "FAILED " + status.ToString());
      _exit(0);
    });
  }

  // Says "WHOLE", "ABSENT", or what is wrong.
  TrialResult Read(bool verify) {
    return RunChild([&](const TrialPipe& pipe) {
      const auto fault = [&]() -> std::string {
        absl::StatusOr<Store> store =
            Store::Open(folder_ / "run", ToRead(QuietOptions()));
        if (absl::IsNotFound(store.status())) return "ABSENT";
        if (!store.ok()) return "NOT " + store.status().ToString();
        if (StepsOf(*store) != std::vector<std::int64_t>{1, 2, 3}) {
          return "NOT all steps";
        }
        for (std::int64_t step = 1; step <= kSteps; ++step) {
          ExpectStep(*store, step, SizeOf(step));
        }
        // The mark of a creation is a finding until the next open.
        if (!verify) return HasFailure() ? "NOT the same bytes" : "WHOLE";
        const absl::StatusOr<VerifyReport> report =
            store->Verify({.level = VerifyOptions::Level::kDeep});
        if (!report.ok()) return report.status().ToString();
        if (!report->findings.empty()) {
          return "NOT " + report->findings[0].what;
        }
        return HasFailure() ? "NOT the same bytes" : "WHOLE";
      };
      pipe.Say(fault());
      _exit(0);
    });
  }

  void Sweep(Mode mode, bool sticky, int error) {
    int fired = 0, whole = 0, none = 0;
    const bool power = mode == Mode::kPowerCut;
    const auto stride = static_cast<std::uint64_t>(CallStride());
    std::uint64_t n = 1;
    for (; n < kMostCalls; n += stride) {
      SCOPED_TRACE(absl::StrFormat("call %d, mode %d, error %d", n,
                                   static_cast<int>(mode), error));
      PutBack();
      const TrialResult result = Open({{.mode = mode,
                                        .at = n,
                                        .error = error,
                                        .sticky = sticky,
                                        .seed = n}},
                                      power);
      ASSERT_FALSE(result.broken()) << result.Text();
      if (counts_->fired == 0) {
        EXPECT_EQ(result.Said("OPENED").size(), 1u) << result.Text();
        break;
      }
      ++fired;
      const std::string at = counts_->FiredAt();
      // Never a part of one.
      const TrialResult read = Read(/*verify=*/false);
      whole += read.Said("WHOLE").size() == 1u ? 1 : 0;
      none += read.Said("ABSENT").size() == 1u ? 1 : 0;
      ASSERT_EQ(whole + none, fired) << at << read.Text();
      ASSERT_EQ(OthersFault(), "") << at;
      const TrialResult again = Open({}, /*power=*/false);
      ASSERT_EQ(again.Said("OPENED").size(), 1u) << at << again.Text();
      const TrialResult all = Read(/*verify=*/true);
      ASSERT_EQ(all.Said("WHOLE").size(), 1u) << at << all.Text();
      ASSERT_EQ(OthersFault(), "") << at;
      ASSERT_FALSE(fs::exists(folder_ / "run/store.fetching")) << at;
      ASSERT_FALSE(fs::exists(folder_ / "run/CREATING")) << at;
    }
    EXPECT_LT(n, kMostCalls);
    EXPECT_GT(fired, 3);
    EXPECT_GT(none, 0);
    absl::PrintF(
        "trial remote, file, fetching all, mode %d, error %d: %d trials, %d "
        "fired, %d had the store at once, 0 lost\n",
        static_cast<int>(mode), error, fired, fired, whole);
  }

  TempDir folder_;

 private:
  SharedFaultCounts counts_;
};

TEST_F(FetchFaultTest, KilledAtEachCall) {
  Sweep(Mode::kKill, /*sticky=*/false, 0);
}

TEST_F(FetchFaultTest, PowerCutAtEachCall) {
  Sweep(Mode::kPowerCut, /*sticky=*/false, 0);
}

TEST_F(FetchFaultTest, EachCallFails) {
  Sweep(Mode::kFail, /*sticky=*/false, 5);
}

TEST_F(FetchFaultTest, FullFromEachCallOn) {
  Sweep(Mode::kFail, /*sticky=*/true, kNoRoom);
}

// As a volume of its own in a container: nothing can take its name.
TEST_F(FetchFaultTest, ALinkToAnEmptyFolderIsMadeTheStore) {
  fs::copy(folder_ / "first-bucket", folder_ / "bucket",
           fs::copy_options::recursive);
  fs::create_directory(folder_ / "volume");
  fs::create_directory_symlink(folder_ / "volume", folder_ / "run");
  const TrialResult opened = Open({}, /*power=*/false);
  ASSERT_EQ(opened.Said("OPENED").size(), 1u) << opened.Text();
  EXPECT_TRUE(fs::is_symlink(fs::symlink_status(folder_ / "run")));
  EXPECT_TRUE(fs::exists(folder_ / "volume/journal"));
  const TrialResult read = Read(/*verify=*/true);
  EXPECT_EQ(read.Said("WHOLE").size(), 1u) << read.Text();
}

}  // namespace
}  // namespace ckptree::testing
