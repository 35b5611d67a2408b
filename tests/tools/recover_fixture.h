// SPDX-License-Identifier: Apache-2.0

// A store with small and large saves, whose copies a test damages, and what
// `ckptree recover` must make of each.

#ifndef CKPTREE_TESTS_TOOLS_RECOVER_FIXTURE_H_
#define CKPTREE_TESTS_TOOLS_RECOVER_FIXTURE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ckptree/ckptree.h"
#include "core/engine/engine.h"
#include "core/engine/store_engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/core/fixture.h"
#include "tests/testutil/status_matchers.h"
#include "tests/tools/command_runner.h"

namespace ckptree {

inline constexpr std::size_t kBigBytes = 3 << 20;
inline constexpr int kManyLeaves = 600;

// Everything that a step says, as text or bytes, by name.
using Model = std::map<std::int64_t, std::map<std::string, std::string>>;

// All of `step` that can be read.
inline std::map<std::string, std::string> ContentOf(const Step& step) {
  std::map<std::string, std::string> content;
  const auto leaves = step.Leaves();
  if (!leaves.ok()) return content;
  for (const LeafInfo& leaf : *leaves) {
    const std::string what = std::string(Name(leaf.kind)) + " " +
                             std::string(Name(leaf.dtype)) + " " + leaf.tag +
                             " ";
    if (leaf.tie_to.has_value()) {
      content[leaf.name] = "tie " + leaf.tie_to->Text();
    } else if (!leaf.is_leaf()) {
      content[leaf.name] = what;
    } else if (const auto value = step.Value(leaf.path); value.ok()) {
      std::string shape;
      for (const auto d : leaf.shape) shape += std::to_string(d) + ",";
      content[leaf.name] =
          what + shape +
          std::string(reinterpret_cast<const char*>(value->bytes.data()),
                      value->bytes.size());
    }
  }
  for (const auto& [name, value] : step.info().metrics) {
    content["metric " + name] = std::to_string(value);
  }
  for (const std::string& tag : step.info().tags) content["tag " + tag] = "";
  content["pinned"] = step.info().pinned ? "yes" : "no";
  content["custom"] = step.Metadata()->custom;
  return content;
}

inline Model ContentOf(const std::string& directory) {
  Model model;
  const auto store = Store::Open(directory, {.read_only = true});
  EXPECT_OK(store);
  if (!store.ok()) return model;
  const std::vector<StepInfo> steps = store->Steps().value();
  for (const StepInfo& info : steps) {
    model[info.step] = ContentOf(store->OpenStep(AtStep(info.step)).value());
  }
  return model;
}

class RecoverTest : public CommandRunner {
 protected:
  // Step 10: one small save. 20: a large one, 3 MiB in chunks and 600 leaves
  // whose records are a segment. 30: shares all but a chunk of it. 40: small
  // again, all else shared. 50: a large array of its own.
  static void Fill(StepBuilder* builder, std::int64_t step,
                   const std::vector<std::byte>& big,
                   const std::vector<std::byte>& many,
                   const std::vector<std::byte>& own) {
    builder->PutInt("count", step);
    builder->PutFloat("lr", 0.5 / static_cast<double>(step));
    builder->PutString("name", "step " + std::to_string(step));
    builder->PutBytes("raw", std::string("\0\1\2", 3));
    builder->PutJson("config", "{\"depth\":12}");
    builder->PutBool("flag", true);
    builder->PutComplex(Path::Parse("z").value(), 1, -2);
    builder->PutProto(Path::Parse("proto").value(), "a.B", "\x08\x01");
    builder->PutNode("empty", EntryKind::kDict);
    builder->SetMetric("loss", 1.0 / static_cast<double>(step));
    builder->SetCustomMetadata("{\"epoch\":" + std::to_string(step) + "}");
    builder->SetNote("note of " + std::to_string(step));
    if (step < 20) return;
    builder->Put("big/w", {.dtype = DType::kFloat32,
                           .shape = {768, 1024},
                           .data = big.data(),
                           .chunk_shape = {64, 1024}});
    builder->Tie("big/tied", "big/w");
    for (int i = 0; i < kManyLeaves; ++i) {
      Tensor tensor{.dtype = DType::kUint8,
                    .shape = {300},
                    .data = many.data() + static_cast<std::ptrdiff_t>(i) * 300};
      // Records large enough for a segment of their own; some are packed.
      if (i % 10 != 0) tensor.chunk_shape = {30};
      builder->Put("many/w" + std::to_string(i), std::move(tensor));
    }
    if (step == 50) {
      builder->Put("own/w", {.dtype = DType::kUint8,
                             .shape = {static_cast<std::int64_t>(own.size())},
                             .data = own.data(),
                             .tag = "mark"});
    }
  }

  // Made once: each test damages a copy.
  static void SetUpTestSuite() {
    made_ = new Made;
    const std::string path = made_->directory / "source";
    ASSERT_OK_AND_ASSIGN(Store store,
                         Store::Open(path, {.create_if_missing = true}));
    std::vector<std::byte> big = testing::RandomBytes(kBigBytes, 1);
    const std::vector<std::byte> many =
        testing::RandomBytes(kManyLeaves * 300, 2);
    const std::vector<std::byte> own = testing::RandomBytes(kBigBytes, 3);
    for (const std::int64_t step : {10, 20, 30, 40, 50}) {
      if (step == 30) big[5 << 18] ^= std::byte{1};
      StepBuilder builder = store.Begin(step);
      Fill(&builder, step, big, many, own);
      ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
    }
    ASSERT_OK(store.Tag("best", 30));
    ASSERT_OK(store.Pin(20));
    const auto files = internal::StoreEngine::Of(store).database().LiveFiles();
    ASSERT_OK(files);
    for (const kv::LiveFile& file : *files) {
      const std::string name =
          std::filesystem::path(file.path).filename().string();
      (file.space == schema::Space::kLeaves ? made_->leaf_tables
                                            : made_->chunk_tables)
          .push_back(name);
    }
    const auto copies =
        internal::StoreEngine::Of(store).database().LeafCopies();
    ASSERT_OK(copies);
    for (const kv::LiveFile& file : *copies) {
      made_->leaf_copies.push_back(
          std::filesystem::path(file.path).filename().string());
    }
    std::sort(made_->chunk_tables.begin(), made_->chunk_tables.end());
    ASSERT_OK(store.Close());
    made_->model = ContentOf(path);
    ASSERT_THAT(made_->model, ::testing::SizeIs(5));
    ASSERT_THAT(made_->model[50], ::testing::SizeIs(kManyLeaves + 15));
    ASSERT_FALSE(made_->leaf_tables.empty());
    ASSERT_GE(made_->chunk_tables.size(), 2u);
  }
  static void TearDownTestSuite() {
    delete made_;
    made_ = nullptr;
  }

  void SetUp() override {
    source_ = scratch_ / "source";
    destination_ = scratch_ / "new";
    std::filesystem::copy(made_->directory / "source", source_,
                          std::filesystem::copy_options::recursive);
    model_ = made_->model;
    for (const std::string& name : made_->leaf_tables) {
      leaf_tables_.push_back(Db(name));
    }
    for (const std::string& name : made_->chunk_tables) {
      chunk_tables_.push_back(Db(name));
    }
  }

  std::string Db(const std::string& name) const {
    return source_ + "/db/" + name;
  }
  std::vector<std::string> DbFiles(const std::string& prefix,
                                   const std::string& extension) const {
    std::vector<std::string> paths;
    for (const auto& entry :
         std::filesystem::directory_iterator(source_ + "/db")) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with(prefix) && name.ends_with(extension)) {
        paths.push_back(entry.path().string());
      }
    }
    std::sort(paths.begin(), paths.end());
    return paths;
  }
  // Both copies of all leaf records: what is neither chunks nor rows.
  std::vector<std::string> TablesOfLeaves() const {
    std::vector<std::string> paths = leaf_tables_;
    for (const std::string& name : made_->leaf_copies) {
      paths.push_back(Db(name));
    }
    return paths;
  }
  // Those of step 50's own array.
  std::string NewestChunks() const { return chunk_tables_.back(); }

  // Those of a copy of the journal ("a-", "b-") or of all rows ("rows-") that
  // were written to.
  std::vector<std::string> JournalFiles(const std::string& prefix) const {
    std::vector<std::string> paths;
    for (const auto& entry :
         std::filesystem::directory_iterator(source_ + "/journal")) {
      if (entry.path().filename().string().starts_with(prefix) &&
          LastByte(ReadFile(entry.path())) > 0) {
        paths.push_back(entry.path().string());
      }
    }
    std::sort(paths.begin(), paths.end());
    return paths;
  }
  // The place of the last byte that is not 0; 0 where all are.
  static std::size_t LastByte(const std::string& bytes) {
    const std::size_t at = bytes.find_last_not_of('\0');
    return at == std::string::npos ? 0 : at;
  }

  std::map<std::string, std::string> AllFiles(const std::string& root) const {
    std::map<std::string, std::string> files;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(root)) {
      if (entry.is_regular_file()) {
        files[entry.path().string()] = ReadFile(entry.path().string());
      }
    }
    return files;
  }

  // Recovers; the report. Everything that is there afterwards is what was
  // saved, and everything else is named in the report.
  nlohmann::json Recover(int code) {
    const auto before = AllFiles(source_);
    const Result result = Run({"recover", source_, destination_, "--json"});
    EXPECT_EQ(result.code, code) << result.out << result.err;
    EXPECT_EQ(AllFiles(source_), before);
    std::set<std::string> left;
    for (const auto& entry :
         std::filesystem::directory_iterator(scratch_.path())) {
      left.insert(entry.path().filename().string());
    }
    left.erase("out");
    left.erase("err");
    left.erase("source");
    left.erase("new");
    EXPECT_THAT(left, ::testing::IsEmpty());
    nlohmann::json report = nlohmann::json::parse(result.out, nullptr, false);
    EXPECT_FALSE(report.is_discarded()) << result.out << result.err;
    EXPECT_EQ(report["ok"], code == 0);
    if (!report.is_discarded()) Compare(report);
    if (code == 0) ExpectAll();
    return report;
  }

  // Nothing of the model is missing.
  void ExpectAll() {
    const Model found = ContentOf(destination_);
    for (const auto& [step, content] : model_) {
      EXPECT_TRUE(found.contains(step) && found.at(step) == content) << step;
    }
    EXPECT_EQ(found.size(), model_.size());
  }

  void Compare(const nlohmann::json& report) {
    const Model found = ContentOf(destination_);
    for (const auto& [step, content] : found) {
      for (const auto& [name, value] : content) {
        EXPECT_TRUE(model_[step][name] == value) << step << " " << name;
      }
    }
    for (const nlohmann::json& row : report["steps"]) {
      const std::int64_t step = row["step"];
      std::set<std::string> lost;
      for (const nlohmann::json& leaf : row["lost_leaves"]) {
        lost.insert(leaf["leaf"].get<std::string>());
        EXPECT_NE(leaf["why"], "");
      }
      EXPECT_EQ(row["result"] == "whole", lost.empty());
      ASSERT_TRUE(found.contains(step));
      for (const auto& [name, value] : model_[step]) {
        EXPECT_NE(found.at(step).contains(name), lost.contains(name))
            << step << " " << name;
      }
    }
    // A step that is gone is a loss by name.
    if (found.size() < model_.size()) {
      EXPECT_THAT(report["losses"], ::testing::Not(::testing::IsEmpty()));
    }
    const Result verified = Run({"-C", destination_, "verify", "--deep"});
    EXPECT_EQ(verified.code, 0) << verified.out << verified.err;
  }

  static std::vector<std::string> LostLeaves(const nlohmann::json& report,
                                             std::int64_t step) {
    std::vector<std::string> names;
    for (const nlohmann::json& row : report["steps"]) {
      if (row["step"] != step) continue;
      for (const nlohmann::json& leaf : row["lost_leaves"])
        names.push_back(leaf["leaf"]);
    }
    return names;
  }

  struct Made {
    testing::TempDir directory;
    std::vector<std::string> leaf_tables;
    std::vector<std::string> leaf_copies;
    std::vector<std::string> chunk_tables;
    Model model;
  };
  inline static Made* made_ = nullptr;

  std::string source_;
  std::string destination_;
  std::vector<std::string> leaf_tables_;
  std::vector<std::string> chunk_tables_;
  Model model_;
};

}  // namespace ckptree

#endif  // CKPTREE_TESTS_TOOLS_RECOVER_FIXTURE_H_
