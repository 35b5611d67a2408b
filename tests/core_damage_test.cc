// A store whose newest save cannot be read any more goes on.

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/engine.h"
#include "core/rank_save.h"
#include "core/step_content.h"
#include "core/store_test_peer.h"
#include "tests/core_fixture.h"
#include "tests/testutil/flip_byte.h"

namespace ckptree::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;

constexpr int kLeaves = 4000;
constexpr std::size_t kLeafBytes = 300;

// Enough leaves that their records are a segment of their own.
class DamageTest : public CoreTest {
 protected:
  static std::string Name(int i) { return "layer/w" + std::to_string(i); }

  std::span<const std::byte> Value(const Bytes& all, int i) const {
    return std::span(all).subspan(static_cast<std::size_t>(i) * kLeafBytes,
                                  kLeafBytes);
  }
  Tensor LeafOf(const Bytes& all, int i) const {
    Tensor tensor;
    tensor.dtype = DType::kUint8;
    tensor.shape = {static_cast<std::int64_t>(kLeafBytes)};
    tensor.data = Value(all, i).data();
    return tensor;
  }
  absl::Status SaveAll(std::int64_t step, const Bytes& all) {
    StepBuilder builder = store_->Begin(step);
    for (int i = 0; i < kLeaves; ++i) builder.Put(Name(i), LeafOf(all, i));
    return Commit(std::move(builder));
  }
  void ExpectAll(std::int64_t step, const Bytes& all) {
    const Step restored = Restored(AtStep(step));
    for (int i = 0; i < kLeaves; ++i) {
      Bytes value(kLeafBytes);
      ASSERT_OK(restored.Read(Name(i), value));
      ASSERT_TRUE(std::ranges::equal(value, Value(all, i))) << Name(i);
    }
  }

  // Saves steps 1 and 2, all leaves changed in each.
  void SetUp() override {
    CoreTest::SetUp();
    ASSERT_OK(SaveAll(1, first_));
    ASSERT_OK(SaveAll(2, second_));
  }

  // Flips a bit in the middle of the largest table of `space` of step 2.
  void Damage(schema::Space space) {
    const auto files =
        internal::StoreTestPeer::engine(*store_).database().LiveFiles();
    ASSERT_OK(files);
    std::string path, first_key;
    std::uint64_t bytes = 0;
    for (const kv::LiveFile& file : *files) {
      if (file.space != space) continue;
      // Keys begin with the version.
      const std::string version = file.first_key.substr(0, 8);
      const std::uint64_t size = std::filesystem::file_size(file.path);
      if (version < first_key || (version == first_key && size < bytes)) {
        continue;
      }
      first_key = version;
      bytes = size;
      path = file.path;
    }
    ASSERT_FALSE(path.empty());
    store_.reset();
    FlipByte(path, bytes / 2);
    Open();
  }

  const Bytes first_ = RandomBytes(kLeaves * kLeafBytes, 1);
  const Bytes second_ = RandomBytes(kLeaves * kLeafBytes, 2);
};

TEST_F(DamageTest, TheNextSaveIsWhole) {
  Damage(schema::Space::kLeaves);
  // Nothing changed since step 2, but that cannot be known.
  ASSERT_OK(SaveAll(3, second_));
  EXPECT_EQ(store_->Resolve(AtStep(3))->base, 0);
  EXPECT_EQ(store_->Resolve(AtStep(3))->new_bytes, second_.size());
  ExpectAll(1, first_);
  ExpectAll(3, second_);
  // The damage is told of step 2 and of no other, with its leaves.
  const auto report = store_->Verify({.level = VerifyOptions::Level::kDeep});
  ASSERT_OK(report);
  EXPECT_THAT(report->findings,
              Contains(Field(&Finding::what, HasSubstr("layer/w"))));
  for (const Finding& finding : report->findings) {
    for (const std::int64_t step : finding.steps) EXPECT_EQ(step, 2);
  }
  // And the one after compares with it again.
  ASSERT_OK(SaveAll(4, second_));
  EXPECT_EQ(store_->Resolve(AtStep(4))->new_bytes, 0);
}

TEST_F(DamageTest, APartBuiltByAnotherProcessIsWhole) {
  Damage(schema::Space::kLeaves);
  const auto content = [this] {
    internal::ContentBuilder builder(kChunk);
    for (int i = 0; i < kLeaves; ++i) {
      EXPECT_OK(builder.AddTensor(At(Name(i)), LeafOf(second_, i),
                                  Ownership::kBorrow));
    }
    return std::move(builder).Finish();
  };
  const auto gather = [&](const internal::RankPlan& plan)
      -> absl::StatusOr<std::vector<schema::PartHandoff>> {
    EXPECT_TRUE(plan.full);
    EXPECT_NE(plan.base, 0);
    absl::StatusOr<Store> rank = Store::Open(path(), ReadOnly());
    if (!rank.ok()) return rank.status();
    absl::StatusOr<internal::StepContent> finished = content();
    if (!finished.ok()) return finished.status();
    const absl::Status written =
        internal::WriteRankPart(*rank, plan, 0, *std::move(finished), {});
    if (!written.ok()) return written;
    absl::StatusOr<schema::PartHandoff> part =
        internal::ReadHandoff(plan, 0, {});
    if (!part.ok()) return part.status();
    return std::vector<schema::PartHandoff>{*std::move(part)};
  };
  ASSERT_OK(internal::CommitParts(*store_, 3, gather));
  EXPECT_EQ(store_->Resolve(AtStep(3))->base, 0);
  ExpectAll(3, second_);
  EXPECT_THAT(StepNumbers(), ElementsAre(1, 2, 3));
}

// A flipped bit costs the leaf whose bytes it is among: reads go around the
// damage. Verify finds the block and names the first leaf that has bytes in it.
TEST_F(DamageTest, AFlippedBitCostsItsChunkAndNoMore) {
  // Step 3 shares the damaged chunk with step 2, but for some leaves.
  Bytes third = second_;
  for (int i = 0; i < kLeaves; i += 500) {
    third[static_cast<std::size_t>(i) * kLeafBytes] ^= std::byte{1};
  }
  ASSERT_OK(SaveAll(3, third));
  Damage(schema::Space::kChunks);
  ExpectAll(1, first_);
  std::set<std::string> lost;
  for (const auto& [number, values] : {std::pair(2, &second_), {3, &third}}) {
    const Step step = Restored(AtStep(number));
    for (int i = 0; i < kLeaves; ++i) {
      Bytes value(kLeafBytes);
      const absl::Status status = step.Read(Name(i), value);
      if (status.ok()) {
        ASSERT_TRUE(std::ranges::equal(value, Value(*values, i))) << Name(i);
        continue;
      }
      EXPECT_THAT(status,
                  StatusIs(absl::StatusCode::kDataLoss,
                           AllOf(HasSubstr("step " + std::to_string(number)),
                                 HasSubstr(Name(i)))));
      lost.insert(Name(i));
    }
  }
  ASSERT_EQ(lost.size(), 1);
  const auto report = store_->Verify({.level = VerifyOptions::Level::kFull});
  ASSERT_OK(report);
  std::set<std::string> names;  // In the order of the tree.
  for (int i = 0; i < kLeaves; ++i) names.insert(Name(i));
  const auto place_of = [&names](const std::string& name) {
    return std::distance(names.begin(), names.find(name));
  };
  bool both = false;
  for (const Finding& finding : report->findings) {
    if (finding.leaf.empty()) continue;
    const auto after = place_of(*lost.begin()) - place_of(finding.leaf);
    EXPECT_GE(after, 0) << finding.what;
    EXPECT_LE(after, (64 << 10) / kLeafBytes) << finding.what;
    both |= finding.steps == std::vector<std::int64_t>{2, 3};
  }
  EXPECT_TRUE(both);
}

}  // namespace
}  // namespace ckptree::testing
