// SPDX-License-Identifier: Apache-2.0

// Single rows of a store that are damaged: what is told of it, and what goes on
// all the same.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "ckptree/ckptree.h"
#include "ckptree/copy.h"
#include "ckptree/recover.h"
#include "core/engine/engine.h"
#include "core/engine/store_engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/commit_kind.h"
#include "kv/database.h"
#include "schema/keys.h"
#include "schema/spaces.h"
#include "tests/core/fixture.h"

namespace ckptree::testing {
namespace {

using schema::BlockKind;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DamagedRowsTest : public CoreTest {
 protected:
  std::uint64_t VersionOf(std::int64_t step) {
    return store_->Resolve(AtStep(step)).value().version;
  }
  // Opens the store anew, with what `change` has made of its rows.
  void Damage(const std::function<void(kv::WriteBatch*)>& change) {
    store_.reset();
    const auto any = [](const kv::Database&, const kv::OpenReport&) {
      return absl::OkStatus();
    };
    kv::CommitRequest request;
    request.kind = kv::CommitKind::kCollect;
    change(&request.batch);
    {
      ASSERT_OK_AND_ASSIGN(
          const auto database,
          kv::Database::Open(path(), {}, kv::Mode::kReadWrite, any));
      ASSERT_OK(database->Commit(std::move(request)).status);
      ASSERT_OK(database->WriteRows());  // Else the journal has it as it was.
    }
    Open();
  }
  std::string Beside(const std::string& name) const { return dir_ / name; }
};

// Each night: one step whose row is damaged keeps none of the later ones back.
TEST_F(DamagedRowsTest, ACopyGoesOnPastAStepThatItHas) {
  for (const int step : {1, 2}) ASSERT_OK(Save(step, RandomBytes(5000, step)));
  Store other = Store::Open(Beside("other"), Options()).value();
  ASSERT_OK(Copy(*store_, &other));
  const std::uint64_t version = VersionOf(1);
  ASSERT_NO_FATAL_FAILURE(Damage([&](kv::WriteBatch* batch) {
    batch->Put(schema::Space::kRecords, schema::StepMetaKey(version), "no");
  }));
  ASSERT_OK(Save(3, RandomBytes(5000, 3)));
  std::vector<CopiedStep::Result> results;
  CopyOptions options;
  options.on_step = [&](const CopiedStep& step) {
    results.push_back(step.result);
  };
  ASSERT_OK(Copy(*store_, &other, options));
  EXPECT_THAT(results, ElementsAre(CopiedStep::Result::kDamaged,
                                   CopiedStep::Result::kThere,
                                   CopiedStep::Result::kCopied));
  std::swap(*store_, other);
  for (const int step : {1, 2, 3}) {
    EXPECT_EQ(Read(AtStep(step)), RandomBytes(5000, step));
  }
}

// All its values are there: it is a step to go on from.
TEST_F(DamagedRowsTest, AStepThatLostItsMetadataAloneIsHealthy) {
  StepBuilder builder = store_->Begin(1);
  const Bytes bytes = RandomBytes(500, 1);
  builder.Put("w", Uint8s(bytes)).SetNote("the first");
  builder.SetCustomMetadata(R"({"a": 1})");
  ASSERT_OK(Commit(std::move(builder)));
  const std::uint64_t version = VersionOf(1);
  ASSERT_NO_FATAL_FAILURE(Damage([&](kv::WriteBatch* batch) {
    batch->Put(schema::Space::kRecords, schema::StepMetaKey(version), "no");
  }));
  ASSERT_OK(store_->Close());
  const auto report = Recover(path(), Beside("recovered"));
  ASSERT_OK(report);
  std::swap(*store_, *std::make_unique<Store>(
                         Store::Open(Beside("recovered"), Options()).value()));
  const StepInfo info = store_->Resolve(AtStep(1)).value();
  EXPECT_THAT(info.note, HasSubstr("metadata is lost] the first"));
  EXPECT_EQ(store_->Resolve(LatestHealthy())->step, 1);
  EXPECT_EQ(Read(AtStep(1)), bytes);
  ExpectClean();
}

// A chunk that a later step has, too, is looked at for that one where the
// record of its leaf in the earlier step cannot be read.
TEST_F(DamagedRowsTest, VerifyLooksAtWhatALostRecordRefersTo) {
  Bytes bytes = RandomBytes(3000, 1);
  for (const int step : {1, 2}) {
    bytes[5] ^= std::byte{1};
    StepBuilder builder = store_->Begin(step);
    Tensor tensor = Uint8s(bytes);
    tensor.chunk_shape = {1000};
    builder.Put("w", std::move(tensor));
    ASSERT_OK(Commit(std::move(builder)));
  }
  // The record of the first step, and the last of its three chunks.
  std::string record, chunk;
  const std::uint64_t version = VersionOf(1);
  {
    const kv::Database& database =
        internal::StoreEngine::Of(*store_).database();
    ASSERT_OK_AND_ASSIGN(kv::Iterator rows,
                         database.Scan(schema::Space::kSmall, "", ""));
    for (; rows.Valid(); rows.Next()) {
      const auto key = schema::DecodeSmallKey(rows.key());
      if (!key.has_value() || key->version != version) continue;
      if (key->kind == BlockKind::kLeafRecord) record = rows.key();
      if (key->kind == BlockKind::kChunk) chunk = rows.key();
    }
  }
  ASSERT_FALSE(record.empty() || chunk.empty());
  ASSERT_NO_FATAL_FAILURE(Damage([&](kv::WriteBatch* batch) {
    batch->Put(schema::Space::kSmall, record, "no");
    batch->Put(schema::Space::kSmall, chunk, std::string(1000, 'x'));
  }));
  for (const int step : {1, 2}) {
    EXPECT_EQ(store_->OpenStep(step)->Value("w").status().code(),
              absl::StatusCode::kDataLoss);
  }
  for (const auto level :
       {VerifyOptions::Level::kFull, VerifyOptions::Level::kDeep}) {
    const auto report = store_->Verify({.level = level});
    ASSERT_OK(report);
    std::vector<std::int64_t> hurt;
    for (const Finding& finding : report->findings) {
      hurt.insert(hurt.end(), finding.steps.begin(), finding.steps.end());
    }
    EXPECT_THAT(hurt, Contains(1));
    EXPECT_THAT(hurt, Contains(2));
  }
}

}  // namespace
}  // namespace ckptree::testing
