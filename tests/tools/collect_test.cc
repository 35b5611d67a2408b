// SPDX-License-Identifier: Apache-2.0

// The commands on what steps cost, on freeing it, and on branches.

#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/core/fixture.h"
#include "tests/testutil/status_matchers.h"
#include "tests/tools/command_runner.h"

namespace ckptree {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::RandomBytes;
using ::testing::StartsWith;

constexpr std::size_t kArray = 3 << 20;

// Steps 10, 20, 30 of the main branch, each an array of its own and a shared
// one; branch "trial" from step 20 with steps 25 and 30, which share 20's
// array; branch "empty" from step 10.
class ToolsCollectTest : public CommandRunner {
 protected:
  void SetUp() override {
    StoreOptions options;
    options.create_if_missing = true;
    options.collect = false;
    ASSERT_OK_AND_ASSIGN(Store store, Store::Open(own_, options));
    const auto save = [&](std::int64_t step, std::uint64_t seed,
                          const std::string& branch) {
      SaveOptions saving;
      saving.branch = branch;
      StepBuilder builder = store.Begin(step, saving);
      const std::vector<std::byte> own = RandomBytes(kArray, seed);
      const std::vector<std::byte> shared = RandomBytes(kArray, 7);
      const auto bytes = [](const std::vector<std::byte>& of) {
        return Tensor{.dtype = DType::kUint8,
                      .shape = {static_cast<std::int64_t>(of.size())},
                      .data = of.data(),
                      .chunk_shape = {64 << 10}};
      };
      builder.Put("params/own", bytes(own));
      builder.Put("params/shared", bytes(shared));
      builder.PutInt("count", step);
      builder.SetMetric("loss", 1.0 / static_cast<double>(step));
      ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
    };
    save(10, 1, "");
    save(20, 2, "");
    ASSERT_OK(store.Fork(AtStep(20), "trial"));
    ASSERT_OK(store.Fork(AtStep(10), "empty"));
    save(25, 2, "trial");
    save(30, 3, "");
    save(30, 4, "trial");
    ASSERT_OK(store.Close());
  }

  Result Do(std::vector<std::string> words) {
    words.insert(words.begin(), {"-C", own_});
    return Run(std::move(words));
  }
  json Json(std::vector<std::string> words) {
    words.emplace_back("--json");
    const Result result = Do(std::move(words));
    const json read = json::parse(result.out, nullptr, false);
    EXPECT_FALSE(read.is_discarded()) << result.out << result.err;
    return read;
  }
  static bool IsNear(std::uint64_t bytes, std::uint64_t wanted) {
    return bytes >= wanted && bytes < wanted + 20000;
  }
  std::uint64_t TableBytes() const {
    std::uint64_t bytes = 0;
    for (const auto& entry :
         std::filesystem::directory_iterator(own_ + "/db")) {
      if (entry.path().extension() == ".sst") bytes += entry.file_size();
    }
    return bytes;
  }

  const std::string own_ = scratch_ / "own";
};

TEST_F(ToolsCollectTest, RmSaysWhatItFreed) {
  const Result dry = Do({"rm", "10", "30", "--dry-run"});
  EXPECT_EQ(dry.code, 0) << dry.err;
  EXPECT_THAT(dry.out, HasSubstr("would remove step 10\nwould remove step 30\n"
                                 "would free 3.0 MiB\nkept: step 10 (version"));
  EXPECT_THAT(dry.out,
              HasSubstr("a branch that has no save yet goes on from it"));
  const std::uint64_t before = TableBytes();
  const Result done = Do({"rm", "10", "30", "-y"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("removed step 10\nremoved step 30\n"
                                  "freed 3.0 MiB\nkept: step 10 (version"));
  EXPECT_LE(TableBytes() + kArray, before + 50000);  // Tables of rows.
  EXPECT_EQ(Do({"rm", "trial/25..trial/30", "--dry-run"}).out,
            "would remove step trial/25\nwould remove step trial/30\n"
            "would free 3.0 MiB\n");
  EXPECT_EQ(Do({"verify", "--deep"}).code, 0);
}

// What is dead beside what lives is given back by gc alone: rm does not count
// it.
TEST_F(ToolsCollectTest, RmCountsNothingThatStaysInFiles) {
  const std::string half = scratch_ / "half";
  {
    ASSERT_OK_AND_ASSIGN(
        Store store,
        // One thread: which chunks are in one file is not left to chance.
        Store::Open(
            half, {.create_if_missing = true, .threads = 1, .collect = false}));
    std::vector<std::byte> bytes = RandomBytes(kArray, 1);
    for (int step = 1; step <= 2; ++step) {
      StepBuilder builder = store.Begin(step);
      builder.Put("w", {.dtype = DType::kUint8,
                        .shape = {static_cast<std::int64_t>(bytes.size())},
                        .data = bytes.data(),
                        .chunk_shape = {64 << 10}});
      ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
      // A third is another one in the step that follows.
      const std::vector<std::byte> other = RandomBytes(kArray / 3, 2);
      std::copy(other.begin(), other.end(), bytes.begin());
    }
    ASSERT_OK(store.Close());
  }
  const auto tables = [&] {
    std::uint64_t sum = 0;
    for (const auto& entry :
         std::filesystem::directory_iterator(half + "/db")) {
      if (entry.path().extension() == ".sst") sum += entry.file_size();
    }
    return sum;
  };
  const std::uint64_t before = tables();
  const Result removed = Run({"-C", half, "rm", "1", "-y"});
  EXPECT_EQ(removed.code, 0) << removed.err;
  EXPECT_THAT(
      removed.out,
      ContainsRegex("removed step 1\nfreed [0-9.]+ K?i?B; about 1.0 MiB "
                    "more are dead in files that hold other bytes"));
  EXPECT_GE(tables() + 50000, before);
  const Result gc = Run({"-C", half, "gc", "--full"});
  EXPECT_EQ(gc.code, 0) << gc.err;
  EXPECT_LE(tables() + kArray / 3, before + 50000);
  EXPECT_EQ(Run({"-C", half, "verify", "--deep"}).code, 0);
}

TEST_F(ToolsCollectTest, GcFreesWhatIsDead) {
  {
    StoreOptions options;
    options.collect = false;
    ASSERT_OK_AND_ASSIGN(Store store, Store::Open(own_, options));
    ASSERT_OK(store.Delete(30));
    ASSERT_OK(store.DropBranch("empty"));
    ASSERT_OK(store.Delete(10));
    ASSERT_OK(store.Delete(20));
    ASSERT_OK(store.Close());
  }
  const Result dry = Do({"gc", "--dry-run"});
  EXPECT_EQ(dry.code, 0);
  EXPECT_THAT(dry.out, StartsWith("would free 6.0 MiB of removed steps\n"));
  EXPECT_TRUE(IsNear(Json({"gc", "--dry-run"})["pending_bytes"], 2 * kArray));
  const std::uint64_t before = TableBytes();
  const json done = Json({"gc", "--full", "--budget", "500MB/s"});
  EXPECT_EQ(done["schema"], "ckptree.gc/2");
  EXPECT_EQ(done["versions"], 3);
  EXPECT_TRUE(IsNear(done["bytes_freed"], 2 * kArray)) << done;
  EXPECT_GE(
      done["files_dropped"].get<int>() + done["files_rewritten"].get<int>(), 2)
      << done;
  EXPECT_GE(done["file_bytes_before"].get<std::uint64_t>(),
            done["file_bytes_after"].get<std::uint64_t>() + 2 * kArray)
      << done;
  EXPECT_THAT(done["kept"], IsEmpty());
  EXPECT_LE(TableBytes() + 2 * kArray, before + 50000);
  EXPECT_THAT(Do({"gc"}).out, StartsWith("there was nothing to free; what"));
  EXPECT_EQ(Do({"gc", "--full"}).out, "there was nothing to free\n");
  EXPECT_EQ(Do({"gc", "--dry-run"}).out,
            "there is nothing to free of removed steps\n");
  EXPECT_EQ(Do({"verify", "--deep"}).code, 0);
  EXPECT_EQ(Do({"get", "trial/25:count"}).out, "25\n");
}

TEST_F(ToolsCollectTest, InterruptedGcLeavesAGoodStore) {
  {
    StoreOptions options;
    options.collect = false;
    ASSERT_OK_AND_ASSIGN(Store store, Store::Open(own_, options));
    ASSERT_OK(store.DropBranch("empty"));
    ASSERT_OK(store.Delete(10));
    ASSERT_OK(store.Close());
  }
  // Minutes at this rate. Interrupted, it ends the file that it is at: where
  // that was the last one, nothing is left to free. A signal that comes before
  // it listens ends it at once: the next one comes later.
  for (double seconds = 0.2;; seconds *= 2) {
    ASSERT_LT(seconds, 60);
    const std::string command = absl::StrFormat(
        "timeout --preserve-status -s INT %f %s -C %s gc "
        "--full --budget 10kB/s > /dev/null 2> %s",
        seconds, CKPTREE_BINARY, own_, scratch_ / "said");
    const int status = std::system(command.c_str());
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(Do({"verify", "--deep"}).code, 0);
    const bool said =
        ReadFile(scratch_ / "said").find("interrupted: what was") !=
        std::string::npos;
    if (WEXITSTATUS(status) == 0) {
      EXPECT_FALSE(said);
      EXPECT_EQ(Json({"gc", "--dry-run"})["dead_bytes"], 0);
      break;
    }
    ASSERT_EQ(WEXITSTATUS(status), 130);
    if (said) break;
  }
  EXPECT_EQ(Do({"gc", "--full"}).code, 0);
  EXPECT_EQ(Json({"gc", "--dry-run"})["dead_bytes"], 0);
  EXPECT_EQ(Do({"verify", "--deep"}).code, 0);
}

TEST_F(ToolsCollectTest, GcSaysWhatItWasAskedWrongly) {
  for (const char* rate : {"fast", "0", "-3MB", "5XB/s", "1e3"}) {
    const Result result = Do({"gc", std::string("--budget=") + rate});
    EXPECT_EQ(result.code, 2) << rate;
    EXPECT_THAT(result.err, HasSubstr("200MB/s")) << rate;
  }
  const Result both = Do({"gc", "--dry-run", "--pack"});
  EXPECT_EQ(both.code, 2);
  EXPECT_THAT(both.err, AllOf(HasSubstr("--dry-run"), HasSubstr("--pack")));
  // "No" in the value of a flag is not taken for the flag.
  for (const char* flag : {"--pack=false", "--full=0", "--dry-run=no"}) {
    const Result result = Do({"gc", flag});
    EXPECT_EQ(result.code, 2) << flag;
    EXPECT_THAT(result.err, HasSubstr(flag));
    EXPECT_THAT(result.err, HasSubstr("takes no value"));
  }
  ASSERT_OK_AND_ASSIGN(Store writer, Store::Open(own_));
  const Result busy = Do({"gc", "--timeout", "0"});
  EXPECT_EQ(busy.code, 4);
  EXPECT_THAT(busy.err, HasSubstr("--wait"));
  EXPECT_EQ(Do({"gc", "--dry-run"}).code, 0);
  EXPECT_EQ(Do({"du"}).code, 0);
  EXPECT_EQ(Do({"du", "--free", "10"}).code, 0);
  EXPECT_EQ(Do({"rm", "10", "--dry-run"}).code, 0);
  EXPECT_EQ(Do({"rm", "10", "-y", "--wait", "0"}).code, 4);
  ASSERT_OK(writer.Close());
}

TEST_F(ToolsCollectTest, AReaderKeepsAStep) {
  // A reader says what it has open where there is a writer to hear it.
  ASSERT_OK_AND_ASSIGN(Store writer, Store::Open(own_));
  ASSERT_OK_AND_ASSIGN(Store reader, Store::Open(own_, {.read_only = true}));
  ASSERT_OK_AND_ASSIGN(const Step open, reader.OpenStep(AtStep(30)));
  ASSERT_OK(writer.Close());
  const Result done = Do({"rm", "30", "-y"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("freed 0 B\nkept: step 30 (version"));
  EXPECT_THAT(done.out, HasSubstr("pid " + std::to_string(getpid())));
  EXPECT_THAT(done.out, HasSubstr("has it open"));
  const json du = Json({"du"});
  ASSERT_EQ(du["kept"].size(), 1u);
  EXPECT_THAT(du["kept"][0]["why"], HasSubstr("pid "));
}

TEST_F(ToolsCollectTest, DuSaysWhatStepsCost) {
  const Result du = Do({"du"});
  EXPECT_EQ(du.code, 0) << du.err;
  EXPECT_THAT(du.out, HasSubstr("trial/25"));
  EXPECT_THAT(du.out, HasSubstr("5 steps, 30 MiB if each were whole, in "));
  const json all = Json({"du"});
  EXPECT_EQ(all["schema"], "ckptree.du/1");
  ASSERT_EQ(all["steps"].size(), 5u);
  const std::vector<std::uint64_t> unique = {0, 0, kArray, 0, kArray};
  const std::vector<std::string> branches = {"", "", "", "trial", "trial"};
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_TRUE(IsNear(all["steps"][i]["unique_bytes"], unique[i])) << all;
    EXPECT_EQ(all["steps"][i]["branch"], branches[i]);
  }
  EXPECT_EQ(
      Do({"du", "--columns", "step", "--where", "branch=trial", "-o", "csv"})
          .out,
      "step\n25\n30\n");

  const json one = Json({"du", "30"});
  ASSERT_EQ(one["subtrees"].size(), 2u);
  EXPECT_EQ(one["subtrees"][1]["key"], "params");
  EXPECT_EQ(one["subtrees"][1]["logical_bytes"], 2 * kArray);
  EXPECT_TRUE(IsNear(one["subtrees"][1]["unique_bytes"], kArray));
  EXPECT_THAT(Do({"du", "trial/30", "--depth", "2"}).out,
              HasSubstr("params/shared"));

  EXPECT_EQ(Do({"du", "--free", "30", "trial/30"}).out,
            "removing 2 steps would free 6.0 MiB\n");
  const json freed = Json({"du", "--free", "0..20"});
  EXPECT_EQ(freed["steps"], json({"10", "20"}));
  EXPECT_EQ(freed["kept"].size(), 2u);
  EXPECT_EQ(Do({"du", "10", "20"}).code, 2);
  EXPECT_EQ(Do({"du", "10:params"}).code, 2);
  EXPECT_EQ(Do({"du", "--depth", "2"}).code, 2);
  EXPECT_EQ(Do({"du", "--free"}).code, 2);
  EXPECT_EQ(Do({"du", "11"}).code, 3);
}

// What goes with a step is more than its values here, and UNIQUE and SHARED
// make up SIZE all the same.
class ToolsUsageTest : public ToolsCollectTest {
 protected:
  void SetUp() override {
    StoreOptions options;
    options.create_if_missing = true;
    options.collect = false;
    ASSERT_OK_AND_ASSIGN(Store store, Store::Open(own_, options));
    store_.emplace(std::move(store));
  }

  // `count` leaves of `size` bytes, of which the first `others` have values
  // that no other save has.
  void Save(std::int64_t step, int count, std::size_t size, int others,
            const std::string& branch = "") {
    SaveOptions saving;
    saving.branch = branch;
    StepBuilder builder = store_->Begin(step, saving);
    std::vector<std::vector<std::byte>> values;  // Lent until the commit.
    for (int i = 0; i < count; ++i) {
      const std::uint64_t seed =
          static_cast<std::uint64_t>(i < others ? 1000 * ++saves_ + i : i);
      const std::vector<std::byte>& value =
          values.emplace_back(RandomBytes(size, seed));
      builder.Put(absl::StrFormat("w/%d", i),
                  {.dtype = DType::kUint8,
                   .shape = {static_cast<std::int64_t>(size)},
                   .data = value.data()});
    }
    ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
  }

  // The row of a step, once the store is closed.
  json RowOf(std::int64_t step, const std::string& branch = "") {
    const json all = Json({"du"});
    for (const json& row : all["steps"]) {
      if (row["step"] == step && row["branch"] == branch) return row;
    }
    ADD_FAILURE() << "no step " << step;
    return {};
  }
  static std::uint64_t Number(const json& row, const char* name) {
    return row[name].get<std::uint64_t>();
  }
  static void ExpectSum(const json& row) {
    EXPECT_EQ(Number(row, "unique_value_bytes") + Number(row, "shared_bytes"),
              Number(row, "logical_bytes"))
        << row;
    EXPECT_GE(Number(row, "unique_bytes"), Number(row, "unique_value_bytes"))
        << row;
  }

  std::optional<Store> store_;

 private:
  int saves_ = 0;
};

TEST_F(ToolsUsageTest, RecordsOfTinyLeaves) {
  Save(1, 300, 8, 0);
  Save(2, 300, 8, 150);
  ASSERT_OK(store_->Close());
  const json row = RowOf(2);
  ExpectSum(row);
  EXPECT_GT(Number(row, "unique_bytes"), Number(row, "logical_bytes"));
  EXPECT_EQ(row["unique_value_bytes"], 300 * 8);
  const json below = Json({"du", "2"})["subtrees"][0];
  ExpectSum(below);
  EXPECT_EQ(below["unique_bytes"], row["unique_bytes"]);
  EXPECT_EQ(below["unique_value_bytes"], 150 * 8);
  EXPECT_EQ(below["shared_bytes"], 150 * 8);
  EXPECT_THAT(Do({"du", "2"}).out,
              ContainsRegex("\nw +300 +2.3 KiB +1.2 KiB +1.2 KiB\n"));
  EXPECT_THAT(
      Do({"du"}).out,
      ContainsRegex("STEP +SIZE +NEW +UNIQUE +SHARED +FREES\n"
                    " +1 +2.3 KiB +2.3 KiB +2.3 KiB +0 B +[0-9.]+ KiB\n"));
}

TEST_F(ToolsUsageTest, SmallLeavesThatLieWithOthers) {
  Save(1, 10, 2000, 0);
  Save(2, 10, 2000, 4);
  ASSERT_OK(store_->Delete(AtStep(1)));
  CollectOptions options;
  options.min_dead_fraction = 0;
  ASSERT_OK(store_->Collect(options).status());
  ASSERT_OK(store_->Close());
  // The four that step 1 alone had are still there, beside its six others.
  const json row = RowOf(2);
  ExpectSum(row);
  EXPECT_GT(Number(row, "unique_bytes"), 14 * 2000u);
  EXPECT_EQ(row["unique_value_bytes"], 10 * 2000);
  const json below = Json({"du", "2"})["subtrees"][0];
  ExpectSum(below);
  EXPECT_EQ(below["unique_value_bytes"], 10 * 2000);
}

TEST_F(ToolsUsageTest, ARemovedStepThatWaits) {
  Save(1, 1, kArray, 1);
  ASSERT_OK(store_->Fork(AtStep(1), "trial"));
  Save(2, 1, kArray, 1);
  Save(2, 1, kArray, 1, "trial");
  ASSERT_OK(store_->Delete(AtStep(1)));
  ASSERT_OK(store_->Close());
  // Where either goes the other is the only one behind step 1.
  for (const char* branch : {"", "trial"}) {
    const json row = RowOf(2, branch);
    ExpectSum(row);
    EXPECT_TRUE(IsNear(row["unique_bytes"], 2 * kArray)) << row;
    EXPECT_EQ(row["unique_value_bytes"], kArray);
  }
}

TEST_F(ToolsCollectTest, ForkListsMakesAndDropsBranches) {
  EXPECT_EQ(Do({"fork", "-o", "csv", "--columns", "branch,steps,from"}).out,
            "branch,steps,from\n,3,\ntrial,2,20\nempty,0,10\n");
  EXPECT_EQ(Do({"fork", "trial/25", "--branch", "second"}).code, 0);
  EXPECT_EQ(Do({"fork", "--branch", "third"}).code, 0);  // From the latest.
  EXPECT_EQ(Do({"fork", "-o", "csv", "--columns", "branch,from"}).out,
            "branch,from\n,\ntrial,20\nempty,10\nsecond,trial/25\nthird,30\n");
  const Result twice = Do({"fork", "10", "--branch", "trial"});
  EXPECT_EQ(twice.code, 2);
  EXPECT_THAT(twice.err, HasSubstr("exists already"));
  for (const char* bad : {"main", "1st", "a/b", "latest", "healthy"}) {
    const Result refused = Do({"fork", "10", std::string("--branch=") + bad});
    EXPECT_EQ(refused.code, 2) << bad;
    for (const char* taken : {"main", "latest", "best", "healthy"}) {
      EXPECT_THAT(refused.err, HasSubstr(taken)) << bad;
    }
  }
  EXPECT_EQ(Do({"fork", "10", "--branch="}).code, 2);
  const Result nameless = Do({"fork", "10"});
  EXPECT_EQ(nameless.code, 2);
  EXPECT_THAT(nameless.err, HasSubstr("`ckptree fork 10 --branch NAME`"));
  EXPECT_THAT(Do({"fork", "mine"}).err,
              HasSubstr("`ckptree fork REV --branch mine`"));
  EXPECT_EQ(Do({"fork", "11", "--branch", "x"}).code, 3);

  EXPECT_EQ(Do({"fork", "--drop", "trial"}).code, 2);  // Nobody to ask.
  const Result unknown = Do({"fork", "--drop", "trail", "-y"});
  EXPECT_EQ(unknown.code, 3);
  EXPECT_THAT(unknown.err, HasSubstr("trial, empty, second, third"));
  EXPECT_EQ(Do({"fork", "--drop", "main", "-y"}).code, 2);
  EXPECT_THAT(Do({"fork", "--drop", "trial", "--dry-run"}).out,
              StartsWith("would remove branch trial and its 2 steps\n"));
  EXPECT_EQ(Do({"pin", "trial/30"}).code, 0);
  const Result pinned = Do({"fork", "--drop", "trial", "-y"});
  EXPECT_EQ(pinned.code, 2);
  EXPECT_THAT(pinned.err, HasSubstr("`ckptree pin --delete trial/30`"));
  EXPECT_EQ(Do({"pin", "--delete", "trial/30"}).code, 0);
  EXPECT_EQ(Do({"fork", "--drop", "second", "-y"}).code, 0);
  const Result dropped = Do({"fork", "--drop", "trial", "-y"});
  EXPECT_EQ(dropped.code, 0) << dropped.err;
  EXPECT_EQ(dropped.out,
            "removed branch trial and its 2 steps\nfreed 3.0 MiB\n");
  EXPECT_EQ(Do({"get", "20:count"}).out, "20\n");
  EXPECT_EQ(Do({"verify", "--deep"}).code, 0);
}

TEST_F(ToolsCollectTest, ADryRunOfADropSaysWhatItFrees) {
  EXPECT_THAT(Do({"rm", "10", "-y"}).out, HasSubstr("freed 0 B"));
  EXPECT_EQ(Do({"fork", "--drop", "empty", "--dry-run"}).out,
            "would remove branch empty, which has no step\n"
            "would free 3.0 MiB\n");
  const auto bytes = [this] {
    std::uintmax_t all = 0;
    for (const auto& entry : std::filesystem::directory_iterator(own_ + "/db"))
      all += entry.file_size();
    return all;
  };
  const std::uintmax_t before = bytes();
  EXPECT_THAT(Do({"fork", "--drop", "empty", "-y"}).out,
              StartsWith("removed branch empty, which has no step\nfreed "));
  EXPECT_EQ(Do({"gc", "--full"}).code, 0);
  EXPECT_LT(bytes() + kArray - 100000, before);
}

TEST_F(ToolsCollectTest, ManyStepsAreOneLine) {
  {
    ASSERT_OK_AND_ASSIGN(Store store, Store::Open(own_));
    for (int step = 100; step < 141; ++step) {
      StepBuilder builder = store.Begin(step);
      builder.PutInt("count", step);
      ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
    }
    ASSERT_OK(store.Close());
  }
  EXPECT_THAT(Do({"rm", "100..119", "-y"}).out,
              StartsWith("removed step 100\nremoved step 101\n"));
  EXPECT_THAT(Do({"rm", "120..140", "--dry-run"}).out,
              StartsWith("would remove the 21 steps 120, 121, ... 140\n"
                         "would free "));
  EXPECT_THAT(Do({"rm", "120..140", "-y"}).out,
              StartsWith("removed the 21 steps 120, 121, ... 140\nfreed "));
}

TEST_F(ToolsCollectTest, EveryCommandTakesStepsOfForks) {
  const std::vector<std::string> columns = {"-o", "csv", "--columns", "step"};
  const auto log = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "log");
    words.insert(words.end(), columns.begin(), columns.end());
    return Do(std::move(words)).out;
  };
  EXPECT_EQ(log({}), "step\n30\n20\n10\n");
  EXPECT_EQ(log({"--branch", "trial"}), "step\n30\n25\n");
  EXPECT_EQ(log({"trial/.."}), "step\n30\n25\n");
  EXPECT_EQ(log({"trial/0..29"}), "step\n25\n");
  EXPECT_EQ(log({"..29", "--branch", "trial"}), "step\n25\n");
  EXPECT_EQ(log({"latest", "--branch", "trial"}), "step\n30\n");
  EXPECT_EQ(Do({"log", "10..trial/30"}).code, 2);
  EXPECT_EQ(Do({"log", "trial/25", "--branch", "empty"}).code, 2);
  const Result unknown = Do({"log", "--branch", "nope"});
  EXPECT_EQ(unknown.code, 3);
  EXPECT_THAT(unknown.err,
              HasSubstr("no branch 'nope'; there are trial, empty"));

  EXPECT_EQ(Do({"get", "trial/25:count"}).out, "25\n");
  EXPECT_EQ(Do({"get", "trial/latest~1:count"}).out, "25\n");
  EXPECT_EQ(Json({"get", "trial/30:count"})["branch"], "trial");
  EXPECT_THAT(Do({"show", "trial/best:loss:min"}).out, HasSubstr("trial/30"));
  EXPECT_THAT(Do({"ls", "trial/25:params"}).out, HasSubstr("params/own"));
  EXPECT_EQ(Do({"export", "trial/25", scratch_ / "x.safetensors"}).code, 0);
  EXPECT_EQ(Do({"verify", "trial/25"}).out.substr(0, 7), "1 step,");
  const Result near = Do({"show", "trial/26"});
  EXPECT_EQ(near.code, 3);
  EXPECT_THAT(near.err, HasSubstr("no step trial/26; next to it: trial/25 and "
                                  "trial/30"));
  EXPECT_THAT(Do({"show", "empty/latest"}).err,
              HasSubstr("branch 'empty' has no step yet"));
  EXPECT_THAT(Do({"get", "trial/25:cuont"}).err,
              HasSubstr("step trial/25 has no key `cuont`"));

  // Each on the fork, not on the step of that number of the main branch.
  EXPECT_EQ(Do({"tag", "mine", "trial/30"}).code, 0);
  EXPECT_THAT(Do({"tag"}).out, HasSubstr("trial/30"));
  EXPECT_EQ(Json({"show", "@mine"})["branch"], "trial");
  EXPECT_EQ(Do({"pin", "trial/30"}).code, 0);
  EXPECT_EQ(Json({"show", "30"})["pinned"], false);
  EXPECT_THAT(Do({"rm", "@mine", "-y"}).err, HasSubstr("trial/30 is pinned"));
  EXPECT_EQ(Do({"pin", "--delete", "@mine"}).code, 0);
  EXPECT_THAT(Do({"rm", "@mine", "-y", "--tagged"}).out,
              StartsWith("removed step trial/30 and the tag @mine\n"
                         "freed 3.0 MiB\n"));
  EXPECT_EQ(log({}), "step\n30\n20\n10\n");
  EXPECT_EQ(Do({"rm", "trial/..", "-y"}).code, 2);
}

TEST_F(ToolsCollectTest, CompletionKnowsBranches) {
  const auto complete = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"__complete", "--", "-C", own_});
    return Run(std::move(words)).out;
  };
  EXPECT_EQ(complete({"log", "--branch", ""}), "trial\nempty\n");
  EXPECT_EQ(complete({"fork", "--drop", "t"}), "trial\n");
  EXPECT_EQ(complete({"ls", "tr"}), "trial/\n");
  EXPECT_EQ(complete({"ls", "trial/"}),
            "trial/latest:\ntrial/30:\ntrial/25:\ntrial/best:loss:max:\n"
            "trial/best:loss:min:\n");
  EXPECT_EQ(complete({"rm", "trial/3"}), "trial/30\n");
  EXPECT_EQ(complete({"get", "trial/30:par"}), "trial/30:params/\n");
}

TEST_F(ToolsCollectTest, PermissionsAreAWarning) {
  std::filesystem::permissions(own_, std::filesystem::perms::others_write,
                               std::filesystem::perm_options::add);
  const Result verify = Do({"verify"});
  EXPECT_EQ(verify.code, 0) << verify.out;
  EXPECT_THAT(verify.out, AllOf(HasSubstr("writable for others"),
                                HasSubstr("no damage, 1 warning")));
  EXPECT_THAT(Run({"repair", own_}).out, Not(HasSubstr("wrong: ")));
}

}  // namespace
}  // namespace ckptree
