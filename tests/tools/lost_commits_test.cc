// SPDX-License-Identifier: Apache-2.0

// Commits that both copies of the journal have lost: what the index still has
// of them counts, and nothing that is older, or another store's, stands for it.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "base/big_endian.h"
#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testutil/flip_byte.h"
#include "tests/testutil/status_matchers.h"
#include "tests/tools/command_runner.h"

namespace ckptree {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using Json = nlohmann::json;

constexpr std::size_t kValues = 50;
// Of a record in the journal (kv/journal/record.h): its magic, where its
// ordinal stands, and a byte of its rows.
constexpr std::string_view kMagic = "CKJR";
constexpr std::size_t kPreface = 4096;
constexpr std::size_t kKindAt = 5;
constexpr std::size_t kOrdinalAt = 24;
constexpr std::size_t kRowsAt = 122;
constexpr char kSeal = 11;

class LostCommitsTest : public CommandRunner {
 protected:
  static StoreOptions Quiet() {
    StoreOptions options;
    options.create_if_missing = true;
    options.collect = false;
    options.log = [](LogSeverity, std::string_view, std::string_view) {};
    return options;
  }
  static void Save(Store& store, std::int64_t step, float value,
                   bool overwrite = false) {
    const std::vector<float> w(kValues, value);
    SaveOptions options;
    options.overwrite = overwrite;
    StepBuilder builder = store.Begin(step, options);
    builder.Put("w", {.dtype = DType::kFloat32,
                      .shape = {static_cast<std::int64_t>(kValues)},
                      .data = w.data()});
    ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
  }
  // One session; what a killed process leaves of it, where `killed`.
  void Session(const std::string& path, bool killed,
               const std::function<void(Store&)>& work) {
    ASSERT_OK_AND_ASSIGN(Store store, Store::Open(path, Quiet()));
    work(store);
    const std::string live = scratch_ / "live";
    if (killed) fs::copy(path, live, fs::copy_options::recursive);
    ASSERT_OK(store.Close());
    if (!killed) return;
    fs::remove_all(path);
    fs::rename(live, path);
  }

  // One bit of the rows of a commit, in both copies.
  void DamageCommit(std::uint64_t ordinal) {
    int hits = 0;
    for (const auto& entry : fs::directory_iterator(store_ + "/journal")) {
      const std::string name = entry.path().filename();
      if (!name.starts_with("a-") && !name.starts_with("b-")) continue;
      const std::string bytes = ReadFile(entry.path());
      for (std::size_t at = bytes.find(kMagic, kPreface); at != bytes.npos;
           at = bytes.find(kMagic, at + 1)) {
        if (at + kRowsAt >= bytes.size() || bytes[at + kKindAt] == kSeal ||
            base::ReadBig<std::uint64_t>(bytes, at + kOrdinalAt) != ordinal) {
          continue;
        }
        testing::FlipByte(entry.path(), at + kRowsAt);
        ++hits;
      }
    }
    ASSERT_GE(hits, 2) << ordinal;
  }

  // What is read of each step: the one value that all of `w` has.
  std::map<std::int64_t, float> Values() const {
    std::map<std::int64_t, float> values;
    const auto store = Store::Open(store_, {.read_only = true});
    EXPECT_OK(store);
    if (!store.ok()) return values;
    const std::vector<StepInfo> steps = store->Steps().value();
    for (const StepInfo& info : steps) {
      const auto step = store->OpenStep(AtStep(info.step));
      EXPECT_OK(step);
      std::vector<float> w(kValues);
      EXPECT_OK(step->Read("w", std::as_writable_bytes(std::span(w))));
      EXPECT_EQ(std::ranges::count(w, w.front()), kValues) << info.step;
      values[info.step] = w.front();
    }
    return values;
  }
  Json Repair(int code) {
    const Result done = Run({"repair", store_, "--yes", "--json"});
    EXPECT_EQ(done.code, code) << done.out << done.err;
    return Json::parse(done.out, nullptr, false);
  }

  const std::string store_ = scratch_ / "store";
};

TEST_F(LostCommitsTest, TheIndexGoesBeforeAnOlderRowOfTheJournal) {
  Session(store_, false, [](Store& store) {
    for (const std::int64_t step : {1, 2})
      Save(store, step, static_cast<float>(step));
  });
  Session(store_, false, [](Store& store) {
    Save(store, 1, 1001, /*overwrite=*/true);  // Commit 4.
  });
  Session(store_, true, [](Store& store) {
    for (const std::int64_t step : {3, 4})
      Save(store, step, static_cast<float>(step));
  });
  DamageCommit(4);
  DamageCommit(5);
  const Json report = Repair(1);
  EXPECT_THAT(Values(), ElementsAre(Pair(1, 1001), Pair(2, 2), Pair(4, 4)));
  // Commit 5 alone is lost, and told.
  EXPECT_THAT(report["losses"].dump(), HasSubstr("commit 5 was acknowledged"));
  EXPECT_THAT(report["losses"].dump(),
              ::testing::Not(HasSubstr("commits 4 to 5")));
}

TEST_F(LostCommitsTest, RowsOfAnotherStoresIndexAreNotTaken) {
  const std::string other = scratch_ / "other";
  for (const bool longer : {true, false}) {
    SCOPED_TRACE(longer);
    fs::remove_all(store_);
    fs::remove_all(other);
    Session(store_, false, [](Store& store) {
      for (std::int64_t step = 1; step <= 5; ++step) {
        Save(store, step, static_cast<float>(step));
      }
    });
    Session(other, false, [longer](Store& store) {
      for (const std::int64_t step : {3, 7, 8, 9, 10, 11}) {
        if (longer || step < 9) Save(store, step, 1000);
      }
    });
    fs::remove_all(store_ + "/db");
    fs::rename(other + "/db", store_ + "/db");
    DamageCommit(4);  // Step 3.
    const Json report = Json::parse(
        Run({"repair", store_, "--yes", "--json"}).out, nullptr, false);
    ASSERT_FALSE(report.is_discarded());
    EXPECT_THAT(report["losses"].dump(),
                HasSubstr("commit 4 was acknowledged"));
    for (const auto& [step, value] : Values()) {
      EXPECT_LE(step, 5);
      EXPECT_NE(step, 3);
      EXPECT_EQ(value, static_cast<float>(step));
    }
  }
}

// Rows are in two places: the journal and tables. Nothing is lost with a bit of
// CURRENT, or with the MANIFEST, but what tells which tables there are.
TEST_F(LostCommitsTest, TablesOfRowsAreReadWithoutAManifest) {
  for (const bool current : {true, false}) {
    SCOPED_TRACE(current);
    fs::remove_all(store_);
    for (std::int64_t step = 1; step <= 6; ++step) {  // A table each.
      Session(store_, false, [step](Store& store) {
        Save(store, step, static_cast<float>(step));
        if (step == 4) Save(store, 2, 2000, /*overwrite=*/true);
        if (step == 5) ASSERT_OK(store.Delete(AtStep(1)));
      });
    }
    fs::remove_all(store_ + "/journal");
    for (const auto& entry : fs::directory_iterator(store_ + "/db")) {
      const std::string name = entry.path().filename();
      if (current && name == "CURRENT") testing::FlipByte(entry.path(), 3);
      if (!current && name.starts_with("MANIFEST-")) fs::remove(entry.path());
    }
    const Json report = Repair(1);
    EXPECT_THAT(report["losses"].dump(), HasSubstr("nobody can tell"));
    EXPECT_THAT(Values(), ElementsAre(Pair(2, 2000), Pair(3, 3), Pair(4, 4),
                                      Pair(5, 5), Pair(6, 6)));
    fs::remove_all(store_ + ".damaged");
  }
}

// Beside a segment that is gone, so that the index is put together anew.
TEST_F(LostCommitsTest, AFlippedBitOfAPackCostsOneLeaf) {
  constexpr int kLeaves = 8;
  const auto put = [](StepBuilder* builder, float first, float big,
                      std::vector<std::vector<float>>* kept) {
    for (int i = 0; i < kLeaves; ++i) {
      kept->emplace_back(1200, first + static_cast<float>(i));
      builder->Put("w" + std::to_string(i), {.dtype = DType::kFloat32,
                                             .shape = {30, 40},
                                             .data = kept->back().data()});
    }
    kept->emplace_back(600 * 600, big);
    builder->Put("big", {.dtype = DType::kFloat32,
                         .shape = {600, 600},
                         .data = kept->back().data()});
  };
  const auto save = [&put](Store& store, std::int64_t step, float first,
                           float big) {
    std::vector<std::vector<float>> kept;
    kept.reserve(kLeaves + 1);
    StepBuilder builder = store.Begin(step);
    put(&builder, first, big, &kept);
    ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
  };
  Session(store_, false, [&](Store& store) { save(store, 1, 0, 1); });
  std::vector<std::string> tables;
  for (const auto& entry : fs::directory_iterator(store_ + "/db")) {
    if (entry.path().extension() == ".sst") tables.push_back(entry.path());
  }
  const std::string segment = *std::ranges::max_element(
      tables, {}, [](const std::string& path) { return fs::file_size(path); });
  Session(store_, true, [&](Store& store) {
    save(store, 2, 100, 1);
    save(store, 3, 100, 5);
  });
  // A bit of w3, in the one place where the bytes of step 2 are.
  const std::vector<float> run(50, 103);
  const std::string_view wanted(reinterpret_cast<const char*>(run.data()),
                                run.size() * sizeof(float));
  int hits = 0;
  for (const auto& entry : fs::directory_iterator(store_ + "/journal")) {
    const std::size_t at = ReadFile(entry.path()).find(wanted);
    if (at == std::string::npos) continue;
    testing::FlipByte(entry.path(), at + 20);
    ++hits;
  }
  ASSERT_EQ(hits, 1);
  ASSERT_TRUE(fs::remove(segment));
  const Json report = Repair(1);
  ASSERT_OK_AND_ASSIGN(const Store store,
                       Store::Open(store_, {.read_only = true}));
  ASSERT_OK_AND_ASSIGN(const Step step, store.OpenStep(AtStep(3)));
  int read = 0;
  for (int i = 0; i < kLeaves; ++i) {
    std::vector<float> w(1200);
    const absl::Status status = step.Read("w" + std::to_string(i),
                                          std::as_writable_bytes(std::span(w)));
    if (!status.ok()) continue;
    ++read;
    EXPECT_EQ(std::ranges::count(w, 100.0f + static_cast<float>(i)), 1200) << i;
  }
  EXPECT_EQ(read, kLeaves - 1) << report.dump(1);
}

TEST_F(LostCommitsTest, WithoutItsNoteTheLastCommitIsMissedAllTheSame) {
  Session(store_, true, [](Store& store) {
    for (const std::int64_t step : {1, 2})
      Save(store, step, static_cast<float>(step));
  });
  DamageCommit(3);
  std::ofstream(store_ + "/journal/tip", std::ios::binary)
      << std::string(kPreface, '\0');
  const Result verified = Run({"-C", store_, "verify", "--deep"});
  EXPECT_EQ(verified.code, 1) << verified.out << verified.err;
  EXPECT_FALSE(Store::Open(store_, Quiet()).ok());
  const Json report = Repair(1);
  EXPECT_THAT(report["losses"].dump(), HasSubstr("nobody can tell"));
  EXPECT_THAT(Values(), ElementsAre(Pair(1, 1)));
}

TEST_F(LostCommitsTest, ANoteOfZerosBehindACloseIsDamage) {
  Session(store_, false, [](Store& store) { Save(store, 1, 1); });
  EXPECT_EQ(Run({"-C", store_, "verify", "--deep"}).code, 0);
  std::ofstream(store_ + "/journal/tip", std::ios::binary)
      << std::string(kPreface, '\0');
  const Result verified = Run({"-C", store_, "verify", "--deep"});
  EXPECT_EQ(verified.code, 1) << verified.out << verified.err;
  EXPECT_THAT(verified.out, HasSubstr("journal/tip is damaged"));
  Session(store_, false, [](Store& store) { Save(store, 2, 2); });
  EXPECT_EQ(Run({"-C", store_, "verify", "--deep"}).code, 0);
}

}  // namespace
}  // namespace ckptree
