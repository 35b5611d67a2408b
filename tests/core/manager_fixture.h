// SPDX-License-Identifier: Apache-2.0

// A manager and what its tests do with it.

#ifndef CKPTREE_TESTS_CORE_MANAGER_FIXTURE_H_
#define CKPTREE_TESTS_CORE_MANAGER_FIXTURE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "ckptree/ckptree.h"
#include "gtest/gtest.h"
#include "tests/testutil/status_matchers.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::testing {

// A wait that only a hang reaches.
inline constexpr absl::Duration kLong = absl::Minutes(2);

class ManagerTest : public ::testing::Test {
 protected:
  ManagerOptions Quiet(ManagerOptions options = {}) {
    options.store.collect = false;
    options.store.log = [this](LogSeverity, std::string_view where,
                               std::string_view text) {
      log_ += absl::StrFormat("%s: %s\n", where, text);
    };
    options.clock = [this] { return now_; };
    return options;
  }
  std::string path() const { return dir_ / "run"; }

  // Closes the manager there is and opens it again.
  void Open(ManagerOptions options = {}) {
    manager_.reset();
    absl::StatusOr<CheckpointManager> manager =
        CheckpointManager::Open(path(), Quiet(std::move(options)));
    ASSERT_OK(manager);
    manager_.emplace(*std::move(manager));
  }
  absl::Status Opening(ManagerOptions options) {
    return CheckpointManager::Open(path(), Quiet(std::move(options))).status();
  }

  static absl::Status Fill(StepBuilder& builder) {
    builder.PutInt("state/count", 7).PutJson("config", "{}");
    builder.SetItemType("config", ItemType::kJson);
    return builder.status();
  }
  absl::StatusOr<bool> TrySave(std::int64_t step,
                               SaveArguments arguments = {}) {
    return manager_->Save(step, Fill, arguments);
  }
  // Saves and waits; true where it was saved.
  bool Save(std::int64_t step, SaveArguments arguments = {}) {
    const absl::StatusOr<bool> saved = TrySave(step, std::move(arguments));
    EXPECT_OK(saved);
    EXPECT_OK(manager_->WaitUntilFinished(kLong));
    return saved.ok() && *saved;
  }
  bool SaveLoss(std::int64_t step, double loss) {
    return Save(step, {.metrics = {{"loss", loss}}});
  }
  std::vector<std::int64_t> Steps() { return manager_->AllSteps().value(); }
  std::optional<std::int64_t> Latest() {
    return manager_->LatestStep().value();
  }
  std::optional<std::int64_t> Best() { return manager_->BestStep().value(); }

  TempDir dir_;
  std::string log_;
  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  std::optional<CheckpointManager> manager_;
};

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_CORE_MANAGER_FIXTURE_H_
