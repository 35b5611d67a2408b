// SPDX-License-Identifier: Apache-2.0

// A damaged store, recovered and repaired, and what each must make of it.

#ifndef CKPTREE_TESTS_TOOLS_REPAIR_FIXTURE_H_
#define CKPTREE_TESTS_TOOLS_REPAIR_FIXTURE_H_

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testutil/status_matchers.h"
#include "tests/tools/recover_fixture.h"

namespace ckptree {

class RepairTest : public RecoverTest {
 protected:
  using Stamps = std::map<std::string, std::filesystem::file_time_type>;

  static Stamps StampsOf(const std::string& root) {
    Stamps stamps = {{"", std::filesystem::last_write_time(root)}};
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(root)) {
      stamps[entry.path().string()] = entry.last_write_time();
    }
    return stamps;
  }

  // What lies beside the store.
  std::vector<std::string> Siblings() const {
    std::vector<std::string> names;
    for (const auto& entry :
         std::filesystem::directory_iterator(scratch_.path())) {
      const std::string name = entry.path().filename().string();
      if (name != "out" && name != "err" && name != "source") {
        names.push_back(name);
      }
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  // Without it a test proves nothing.
  void ExpectDamaged() {
    bool told = false;
    {
      const auto store = Store::Open(CopyOf("fired"), Quiet());
      told = !store.ok() || !store->Info().warnings.empty();
    }
    std::filesystem::remove_all(scratch_ / "fired");
    if (told) return;
    EXPECT_EQ(Run({"-C", source_, "verify", "--deep"}).code, 1)
        << "the damage did not fire";
  }

  std::string CopyOf(const std::string& name) {
    std::filesystem::copy(source_, scratch_ / name,
                          std::filesystem::copy_options::recursive);
    return scratch_ / name;
  }

  static StoreOptions Quiet() {
    StoreOptions options;
    options.collect = false;  // Some copy the files while it is open.
    options.log = [](LogSeverity, std::string_view, std::string_view) {};
    return options;
  }

  // The store as a killed process leaves it, with two more steps: 60 is small,
  // 70 large. Both are in the newest file of the journal.
  void KillAfterTwoMoreSteps() {
    const std::string live = scratch_ / "live";
    Store store = Store::Open(source_).value();
    StepBuilder small = store.Begin(60);
    small.PutInt("count", 60);
    EXPECT_OK(std::move(small).Commit().WaitCommitted(absl::Minutes(1)));
    const std::vector<std::byte> own = testing::RandomBytes(kBigBytes, 4);
    StepBuilder large = store.Begin(70);
    large.Put("own/w", {.dtype = DType::kUint8,
                        .shape = {static_cast<std::int64_t>(own.size())},
                        .data = own.data()});
    EXPECT_OK(std::move(large).Commit().WaitCommitted(absl::Minutes(1)));
    std::filesystem::copy(source_, live,
                          std::filesystem::copy_options::recursive);
    EXPECT_OK(store.Close());
    std::filesystem::remove_all(source_);
    std::filesystem::rename(live, source_);
    model_ = ContentOf(source_);
    EXPECT_THAT(model_, ::testing::SizeIs(7));
    highest_ = 7;
  }

  // The store is refused or verify complains; it is recovered, then repaired,
  // and must be as good as new with what is left. The report of the repair.
  nlohmann::json Mend(const std::string& action, int code) {
    ExpectDamaged();
    const Result recovered = Run({"recover", source_, destination_, "--json"});
    const nlohmann::json kept =
        nlohmann::json::parse(recovered.out, nullptr, false);
    EXPECT_FALSE(kept.is_discarded()) << recovered.err;
    EXPECT_TRUE(recovered.code == 0 || recovered.code == 1) << recovered.err;
    if (!kept.is_discarded()) Compare(kept);
    EXPECT_EQ(recovered.code, code) << recovered.out << recovered.err;
    if (code == 0) ExpectAll();
    std::filesystem::remove_all(destination_);

    // The plan changes nothing, however often.
    const auto before = AllFiles(source_);
    const Stamps stamps = StampsOf(source_);
    const Result text = Run({"repair", source_});
    EXPECT_EQ(text.code, 1) << text.out << text.err;
    EXPECT_THAT(text.out, ::testing::HasSubstr("wrong: "));
    EXPECT_THAT(text.out, ::testing::HasSubstr("nothing was changed"));
    const Result dry = Run({"repair", source_, "--json"});
    EXPECT_EQ(dry.code, 1) << dry.out << dry.err;
    EXPECT_TRUE(AllFiles(source_) == before);
    EXPECT_EQ(StampsOf(source_), stamps);
    EXPECT_THAT(Siblings(), ::testing::IsEmpty());
    const nlohmann::json plan = nlohmann::json::parse(dry.out, nullptr, false);
    EXPECT_FALSE(plan.is_discarded()) << dry.out << dry.err;
    if (plan.is_discarded()) return plan;
    EXPECT_EQ(plan["action"], action);
    EXPECT_EQ(plan["done"], false);

    const Result done = Run({"repair", source_, "--yes", "--json"});
    const nlohmann::json report =
        nlohmann::json::parse(done.out, nullptr, false);
    EXPECT_FALSE(report.is_discarded()) << done.out << done.err;
    if (report.is_discarded()) return report;
    EXPECT_EQ(done.code, code) << done.out << done.err;
    EXPECT_EQ(report["complete"], code == 0);
    EXPECT_EQ(report["done"], true);
    // It did what it had said.
    for (const char* key : {"action", "id", "steps", "losses", "problems",
                            "notes", "newest_whole_step"}) {
      EXPECT_EQ(WithoutReasons(report[key]), WithoutReasons(plan[key])) << key;
    }
    if (action == "rebuild") {
      EXPECT_THAT(Siblings(), ::testing::ElementsAre("source.damaged"));
      EXPECT_EQ(report["damaged_store"], source_ + ".damaged");
      ExpectKept(before);
      EXPECT_EQ(ResultsOf(report), ResultsOf(kept));
    } else {
      EXPECT_THAT(Siblings(), ::testing::IsEmpty());
    }
    destination_ = source_;
    Compare(report);
    if (code == 0) ExpectAll();
    ExpectUsable();
    EXPECT_EQ(Run({"repair", source_}).code, 0);
    return report;
  }

  // One damage that costs nothing: whoever reads has all, `recover` and
  // `repair` give all, and say little; and the store goes on.
  void MendWholly() {
    const std::string to = std::exchange(destination_, source_);
    ExpectAll();
    destination_ = to;
    const Result recovered = Run({"recover", source_, destination_});
    EXPECT_EQ(recovered.code, 0) << recovered.out << recovered.err;
    ExpectAll();
    std::filesystem::remove_all(destination_);
    const Result plan = Run({"repair", source_, "--json"});
    const nlohmann::json said = nlohmann::json::parse(plan.out, nullptr, false);
    ASSERT_FALSE(said.is_discarded()) << plan.out << plan.err;
    EXPECT_THAT(said["action"], ::testing::AnyOf("nothing", "mend"));
    EXPECT_EQ(plan.code, said["action"] == "mend" ? 1 : 0);
    const Result done = Run({"repair", source_, "--yes"});
    EXPECT_EQ(done.code, 0) << done.out << done.err;
    destination_ = source_;
    ExpectAll();
    ExpectUsable();
    destination_ = to;
  }

  // Of several chunks that are lost, whichever is met first is the reason.
  static nlohmann::json WithoutReasons(nlohmann::json value) {
    if (!value.is_array()) return value;
    for (nlohmann::json& row : value) {
      if (!row.is_object()) continue;
      for (nlohmann::json& leaf : row["lost_leaves"]) leaf.erase("why");
    }
    return value;
  }

  static std::map<std::int64_t, std::string> ResultsOf(
      const nlohmann::json& report) {
    std::map<std::int64_t, std::string> results;
    for (const nlohmann::json& row : report["steps"]) {
      results[row["step"]] =
          absl::StrFormat("%s, %d lost", row["result"].get<std::string>(),
                          row["lost"].get<int>());
    }
    return results;
  }

  // The damaged store is what it was, but for its lock.
  void ExpectKept(const std::map<std::string, std::string>& before) {
    std::map<std::string, std::string> kept;
    for (const auto& [path, bytes] : AllFiles(source_ + ".damaged")) {
      kept[source_ + path.substr((source_ + ".damaged").size())] = bytes;
    }
    kept.erase(source_ + "/LOCK");
    auto expected = before;
    expected.erase(source_ + "/LOCK");
    EXPECT_TRUE(kept == expected);
  }

  // It opens for writing without a word, and goes on.
  void ExpectUsable() {
    std::uint64_t version = 0;
    {
      ASSERT_OK_AND_ASSIGN(Store store, Store::Open(source_, Quiet()));
      EXPECT_THAT(store.Info().warnings, ::testing::IsEmpty());
      StepBuilder builder = store.Begin(1000);
      const std::vector<std::byte> more = testing::RandomBytes(kBigBytes, 9);
      builder.Put("more", {.dtype = DType::kUint8,
                           .shape = {static_cast<std::int64_t>(more.size())},
                           .data = more.data()});
      SaveHandle save = std::move(builder).Commit();
      ASSERT_OK(save.WaitCommitted(absl::Minutes(1)));
      version = save.version();
      const std::vector<StepInfo> steps = store.Steps().value();
      for (const StepInfo& info : steps) {
        EXPECT_LE(info.version, version);
      }
      // Blocks of commits that are lost go, too.
      ASSERT_OK(store.Collect());
      ASSERT_OK(store.Close());
    }
    EXPECT_GT(version, highest_);
    const Result verified = Run({"-C", source_, "verify", "--deep"});
    EXPECT_EQ(verified.code, 0) << verified.out << verified.err;
    EXPECT_THAT(verified.out, ::testing::HasSubstr("no damage"));
  }

  std::uint64_t highest_ = 5;  // Version that was ever used.
};

}  // namespace ckptree

#endif  // CKPTREE_TESTS_TOOLS_REPAIR_FIXTURE_H_
