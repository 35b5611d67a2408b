// SPDX-License-Identifier: Apache-2.0

// `ckptree doctor`.

#include <sys/resource.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testutil/status_matchers.h"
#include "tests/tools/command_runner.h"

namespace ckptree {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class DoctorTest : public CommandRunner {
 protected:
  // Three steps of one number each.
  void SetUp() override { Save(store_, {1, 2, 3}); }

  static void Save(const std::string& directory,
                   const std::vector<float>& values) {
    ASSERT_OK_AND_ASSIGN(Store store,
                         Store::Open(directory, {.create_if_missing = true}));
    std::int64_t step = 0;
    for (const float& value : values) {
      StepBuilder builder = store.Begin(++step);
      builder.Put("w", {.dtype = DType::kFloat32, .data = &value});
      builder.PutBytes("padding", std::string(20'000, 'x'));
      ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
    }
    ASSERT_OK(store.Close());
  }

  // By check: the last one of each.
  std::map<std::string, json> Checks(int code) {
    const Result result = Run({"-C", store_, "doctor", "--json"});
    EXPECT_EQ(result.code, code) << result.out << result.err;
    std::map<std::string, json> checks;
    const json found = json::parse(result.out, nullptr, false);
    if (found.is_discarded()) return checks;
    EXPECT_EQ(found["schema"], "ckptree.doctor/1");
    EXPECT_EQ(found["ok"], code == 0);
    for (const json& row : found["checks"]) {
      checks[row["check"]] = row;
      EXPECT_EQ(row["level"] == "good", row["advice"].is_null()) << row;
    }
    return checks;
  }

  const std::string store_ = scratch_ / "store";
};

TEST_F(DoctorTest, AStoreThatIsWell) {
  const auto checks = Checks(0);
  for (const char* check :
       {"store", "space", "file system", "fsync", "open files", "policy",
        "leftovers", "clock", "versions"}) {
    ASSERT_TRUE(checks.contains(check)) << check;
    EXPECT_NE(checks.at(check)["level"], "problem") << check;
  }
  EXPECT_GT(checks.at("space")["facts"]["free_bytes"], 0);
  EXPECT_GT(checks.at("space")["facts"]["largest_save_bytes"], 10'000);
  EXPECT_EQ(checks.at("versions")["facts"]["saved_by"].size(), 1u);
  EXPECT_THAT(Run({"-C", store_, "status"}).out, HasSubstr("CHECK"));
}

TEST_F(DoctorTest, AStoreThatIsDamagedIsAProblem) {
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(store_)) {
    if (!entry.is_regular_file() || entry.path().filename() == "LOCK") continue;
    std::filesystem::resize_file(entry.path(), entry.file_size() / 2);
  }
  const auto checks = Checks(1);
  ASSERT_TRUE(checks.contains("store"));
  EXPECT_EQ(checks.at("store")["level"], "problem");
}

TEST_F(DoctorTest, HowLongTheSpaceLasts) {
  const auto space = [this] { return Checks(0).at("space"); };
  const auto days = [&](const char* of) { return space()["facts"][of]; };
  // Of a second nobody knows.
  EXPECT_TRUE(days("days_left").is_null());
  EXPECT_THAT(space()["what"].dump(), HasSubstr("too short a time"));
  // A policy bounds what grows.
  ASSERT_EQ(Run({"-C", store_, "policy", "--set", "latest(3)"}).code, 0);
  EXPECT_TRUE(days("days_left").is_null());
  EXPECT_TRUE(days("days_left_at_least").is_null());
  EXPECT_THAT(space()["what"].dump(), AllOf(HasSubstr("what `latest(3)` keeps"),
                                            HasSubstr("cannot be said")));
  // One that keeps all bounds nothing.
  ASSERT_EQ(Run({"-C", store_, "policy", "--set", "all"}).code, 0);
  EXPECT_THAT(space()["what"].dump(), HasSubstr("too short a time"));
}

TEST_F(DoctorTest, FewOpenFiles) {
  struct rlimit before {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  struct rlimit low = before;
  low.rlim_cur = 200;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  const auto checks = Checks(1);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(checks.at("open files")["level"], "problem");
  EXPECT_EQ(checks.at("open files")["facts"]["limit"], 200);
  EXPECT_THAT(checks.at("open files")["advice"].dump(), HasSubstr("ulimit -n"));
}

TEST_F(DoctorTest, PoliciesThatKeepTooLittle) {
  ASSERT_EQ(Run({"-C", store_, "policy", "--set", "latest(1)"}).code, 0);
  const auto checks = Checks(0);
  EXPECT_EQ(checks.at("policy")["level"], "note");
  EXPECT_THAT(checks.at("policy")["advice"].dump(), HasSubstr("latest(2)"));
  // A step that is tagged stays, too.
  ASSERT_EQ(Run({"-C", store_, "tag", "warm", "1"}).code, 0);
  EXPECT_EQ(Checks(0).at("policy")["level"], "good");
}

TEST_F(DoctorTest, NoHealthyStepWouldBeLeft) {
  const std::string store = scratch_ / "nan";
  Save(store, {1, std::nanf(""), std::nanf("")});
  ASSERT_EQ(Run({"-C", store, "policy", "--set", "latest(2)"}).code, 0);
  const Result result = Run({"-C", store, "doctor"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, HasSubstr("would keep no step without NaN"));
  EXPECT_THAT(result.out, HasSubstr("the latest step, 3, has NaN"));
  EXPECT_THAT(result.out, HasSubstr("go on from step 1"));
}

TEST_F(DoctorTest, ClockAndLeftovers) {
  {
    ASSERT_OK_AND_ASSIGN(Store store, Store::Open(store_));
    StepBuilder builder =
        store.Begin(600, {.time = absl::Now() + absl::Hours(30)});
    builder.PutInt("n", 1);
    ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
    ASSERT_OK(store.Close());
  }
  std::filesystem::create_directory(store_ + "/db.damaged-7");
  std::ofstream(store_ + "/db/unreadable-000007.sst") << "x";
  for (const char* end : {"", ".2", ".10", ".old"}) {
    std::filesystem::create_directory(store_ + ".damaged" + end);
  }
  const Result result = Run({"-C", store_, "doctor"});
  EXPECT_THAT(result.out, HasSubstr("db.damaged-7"));
  EXPECT_THAT(result.out, HasSubstr("db/unreadable-000007.sst is a table that "
                                    "the disk could not give"));
  EXPECT_THAT(result.out, HasSubstr(store_ + ".damaged and 2 more to " +
                                    store_ + ".damaged.10 are there"));
  EXPECT_THAT(result.out, HasSubstr("remove it when nothing of it is missed"));
  EXPECT_EQ(Run({"-C", scratch_ / "no", "doctor"}).code, 3);
  EXPECT_EQ(Run({"-C", store_, "doctor", "x"}).code, 2);
}

TEST_F(DoctorTest, AnAddressThatCannotBeRead) {
  // Refused before anything is asked of it.
  setenv("AWS_ENDPOINT_URL_S3", "http://storage.example.com", 1);
  const Result result = Run({"-C", "s3://bucket/run", "doctor", "--json"});
  const Result other = Run({"-C", "s3://bucket/run", "log"});
  unsetenv("AWS_ENDPOINT_URL_S3");
  if (absl::StrContains(result.err, "is without s3")) {
    GTEST_SKIP() << result.err;
  }
  EXPECT_EQ(result.code, 1) << result.err;
  const json found = json::parse(result.out, nullptr, false);
  ASSERT_FALSE(found.is_discarded()) << result.out << result.err;
  EXPECT_EQ(found["ok"], false);
  ASSERT_EQ(found["checks"].size(), 1u);
  const json& row = found["checks"][0];
  EXPECT_EQ(row["check"], "remote");
  EXPECT_EQ(row["level"], "problem");
  EXPECT_THAT(row["what"].get<std::string>(), HasSubstr("plain http"));
  EXPECT_FALSE(row["advice"].is_null());
  EXPECT_EQ(row["facts"]["remote"], "s3://bucket/run");
  EXPECT_EQ(other.code, 2) << other.err;
}

}  // namespace
}  // namespace ckptree
