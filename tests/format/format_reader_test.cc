// SPDX-License-Identifier: Apache-2.0

// A reader that knows nothing but schema/FORMAT.md reads what the engine wrote.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "absl/strings/escaping.h"
#include "nlohmann/json.hpp"
#include "tests/core/fixture.h"

namespace ckptree::testing {
namespace {

using nlohmann::json;

class FormatReaderTest : public CoreTest {
 protected:
  // A tree with an entry of every kind, every element type, and every form in
  // which a value is stored. `seed` changes some of the values.
  void SaveEverything(std::int64_t step, std::uint64_t seed) {
    StepBuilder builder = store_->Begin(step);
    std::vector<Bytes> alive;
    alive.reserve(200);
    const auto put = [&](const Path& path, DType dtype, const Shape& shape,
                         bool packed = false, Shape chunk = {}) {
      alive.push_back(RandomBytes(BytesOf(dtype, packed, shape),
                                  alive.size() % 2 == 0 ? seed : 1));
      Tensor tensor = Array(dtype, shape, alive.back());
      tensor.packed = packed;
      tensor.chunk_shape = std::move(chunk);
      builder.Put(path, std::move(tensor));
    };
    for (int type = 1; type <= 34; ++type) {
      const auto dtype = static_cast<DType>(type);
      const std::string name(Name(dtype));
      put(At("types/" + name), dtype, {5, 7});
      if (IsSubByte(dtype)) {
        put(At("packed/" + name), dtype, {5, 77}, true);
      }
    }
    put(At("forms/scalar"), DType::kFloat32, {});
    put(At("forms/empty"), DType::kFloat32, {3, 0, 2});
    put(At("forms/packed"), DType::kFloat64, {20, 30});
    put(At("forms/rows"), DType::kInt16, {300, 400});
    put(At("forms/grid"), DType::kFloat32, {130, 3, 95}, false, {64, 2, 33});
    // One array in two boxes.
    const Bytes left = RandomBytes(50 * 40 * 4, seed + 7);
    const Bytes right = RandomBytes(50 * 60 * 4, 8);
    for (const auto& [bytes, from, to] :
         {std::tuple(&left, 0, 40), std::tuple(&right, 40, 100)}) {
      Tensor tensor = Array(DType::kFloat32, {50, to - from}, *bytes);
      tensor.start = {0, from};
      tensor.global_shape = {50, 100};
      builder.Put(At("forms/boxes"), std::move(tensor));
    }
    builder.PutBool("values/flag", true).PutInt("values/int", -3);
    builder.PutFloat("values/float", 0.1).PutComplex(At("values/c"), 1, -2);
    builder.PutString("values/text", "Fuß").PutJson("values/json", "[1]");
    builder.PutBytes("values/long", std::string(200'000, 'x'));
    builder.PutBytes("values/bytes", std::string("\0\1\2\377", 4));
    builder.PutProto(At("values/proto"), "a.B", "\x08\x01");
    builder.PutFile(At("values/file"), std::string(40'000, 'f'));
    builder.PutNode("nodes/none", EntryKind::kNone);
    builder.PutNode("nodes/tuple", EntryKind::kTuple);
    builder.PutNode("nodes/named", EntryKind::kNamedTuple, "P(a,b)");
    builder.Tie("values/again", "values/int");
    for (const char* path :
         {"keys/{3}", "keys/{-70000}", "keys/{null}", "keys/{true}",
          "keys/{2.5}", "keys/{-0.0}", "keys/{b\"\\x00\\x01\"}",
          "keys/{(1,\"a\",())}", "list/[0]", "list/[300]", "object/.name",
          "flat/<2>", "odd/\"a/b \\u0001\""}) {
      builder.PutInt(path, 1);
    }
    ASSERT_OK(Commit(std::move(builder)));
  }

  static std::string Contents(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  void RunReader(const std::string& words) {
    // Debian's own Python, which sees Debian's xxhash.
    const std::string command =
        "/usr/bin/python3 " CKPTREE_READER " " + path() + " " + words;
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
  }

  void ExpectLists(const std::string& steps) {
    store_.reset();
    ASSERT_NO_FATAL_FAILURE(RunReader("> " + (dir_ / "list")));
    EXPECT_EQ(Contents(dir_ / "list"), steps);
    Open();
  }

  // Runs the reader on the store, which is closed, and compares every entry.
  void ExpectReads(const std::string& step, std::size_t least) {
    store_.reset();
    const std::string out = dir_ / ("read-" + std::to_string(reads_++));
    std::filesystem::create_directory(out);
    ASSERT_NO_FATAL_FAILURE(RunReader(step + " " + out));
    const json index = json::parse(Contents(out + "/index.json"));
    Open();
    const Step restored = Restored(ParseSelector(step).value());
    const std::vector<LeafInfo> leaves = restored.Leaves().value();
    ASSERT_EQ(index.size(), leaves.size());
    EXPECT_GE(index.size(), least);
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      const LeafInfo& leaf = leaves[i];
      const json& entry = index[i];
      SCOPED_TRACE(leaf.name);
      EXPECT_EQ(entry["path"], absl::BytesToHexString(leaf.path.Encode()));
      EXPECT_EQ(entry["kind"], Name(leaf.kind));
      EXPECT_EQ(entry["tag"], leaf.tag);
      if (leaf.tie_to.has_value()) {
        EXPECT_EQ(entry["tie_to"],
                  absl::BytesToHexString(leaf.tie_to->Encode()));
      }
      if (!leaf.is_leaf()) continue;
      proved_ += entry["proved"].get<bool>() ? 1 : 0;
      if (leaf.kind == EntryKind::kArray) {
        EXPECT_EQ(entry["dtype"], static_cast<int>(leaf.dtype));
        EXPECT_EQ(entry["packed"], leaf.packed);
        EXPECT_EQ(entry["shape"].get<Shape>(), leaf.shape);
      }
      const Bytes value = restored.Value(leaf.path).value().bytes;
      const std::string read = Contents(out + "/" + std::to_string(i) + ".bin");
      EXPECT_TRUE(read ==
                  std::string_view(reinterpret_cast<const char*>(value.data()),
                                   value.size()))
          << read.size() << " bytes, " << value.size() << " saved";
    }
  }

  int reads_ = 0;
  int proved_ = 0;  // Leaves that were read and have a proof.
};

TEST_F(FormatReaderTest, ReadsEveryKindOfEverything) {
  SaveEverything(4, 1);
  SaveEverything(1000, 2);  // Shares half of its leaves with the one before.
  ExpectReads("4", 75);
  ExpectReads("1000", 75);
}

TEST_F(FormatReaderTest, ReadsWhatIsCoded) {
  StoreOptions options = Options();
  options.coding = Coding::kPlanes;
  Open(options);
  SaveEverything(1, 1);
  // Words of each width, with few values in their highest byte.
  StepBuilder builder = store_->Begin(2);
  std::vector<Bytes> alive;
  for (const DType dtype : {DType::kBfloat16, DType::kFloat32, DType::kFloat64,
                            DType::kInt64, DType::kUint8}) {
    const std::size_t width = BytesOf(dtype, false, {1});
    Bytes& bytes = alive.emplace_back(RandomBytes(70'001 * width, width));
    for (std::size_t i = width - 1; i < bytes.size(); i += width) {
      bytes[i] &= std::byte{0x81};
    }
    builder.Put(At("w/" + std::string(Name(dtype))),
                Array(dtype, {70'001}, bytes));
  }
  builder.PutBytes("text", std::string(100'003, 'x'));
  ASSERT_OK(Commit(std::move(builder)));
  const Stats stats = store_->GetStats();
  EXPECT_GE(stats.bytes_coded, 1u << 20);
  ExpectReads("1", 75);
  ExpectReads("2", 6);
}

TEST_F(FormatReaderTest, ReadsASaveThatRodeInItsBatch) {
  ASSERT_OK(Save(1, RandomBytes(5000, 1)));
  ASSERT_OK(Save(2, RandomBytes(5000, 2)));
  ExpectReads("1", 1);
  ExpectReads("2", 1);
  EXPECT_EQ(proved_, 2);
}

TEST_F(FormatReaderTest, SlicesHaveTheProofsThatItSays) {
  std::vector<Bytes> alive;
  for (const std::int64_t step : {1, 2}) {
    StepBuilder builder = store_->Begin(step);
    for (int i = 0; i < 40; ++i) {
      const Bytes& bytes = alive.emplace_back(
          RandomBytes(static_cast<std::size_t>(300 + 100 * i), i % 4 * step));
      builder.Put("w" + std::to_string(i), Uint8s(bytes));
    }
    ASSERT_OK(Commit(std::move(builder)));
  }
  ExpectReads("1", 40);
  EXPECT_EQ(proved_, 37);  // Three are too small.
  ExpectReads("2", 40);
  EXPECT_GT(proved_, 37 + 25);
}

TEST_F(FormatReaderTest, ReadsManyPages) {
  StepBuilder builder = store_->Begin(1);
  for (int i = 0; i < 2000; ++i) {
    builder.PutInt("layer/" + std::to_string(i), i);
  }
  ASSERT_OK(Commit(std::move(builder)));
  ExpectReads("1", 2000);
}

TEST_F(FormatReaderTest, ReadsWhatWasForkedAndCollected) {
  const Bytes first = RandomBytes(4 << 20, 1);
  const auto changed = [&first](std::size_t chunk) {
    Bytes bytes = first;
    bytes[chunk * kChunk] ^= std::byte{1};
    return bytes;
  };
  ASSERT_OK(Save(1, first));
  ASSERT_OK(Save(2, RandomBytes(9000, 2)));  // Rides in its batch.
  ASSERT_OK(Save(3, changed(1)));
  ASSERT_OK(store_->Fork(AtStep(1), "trial"));
  ASSERT_OK(store_->Fork(AtStep(3), "none"));
  ASSERT_OK(Save(3, changed(2), {.branch = "trial"}));
  ASSERT_OK(Save(12, RandomBytes(9000, 3), {.branch = "trial"}));
  ASSERT_OK(Save(12, changed(3)));
  ExpectLists("1\n2\n3\n12\ntrial/3\ntrial/12\n");
  // What is left of steps 1 and 3 is written again, what step 2 had is gone.
  for (const int step : {1, 2, 3}) ASSERT_OK(store_->Delete(step));
  ASSERT_OK(store_->DropBranch("none"));
  const auto report = store_->Collect({.min_dead_fraction = 0});
  ASSERT_OK(report);
  EXPECT_GE(report->versions, 2u);
  EXPECT_GE(report->files_rewritten + report->files_dropped, 1u);
  ExpectLists("12\ntrial/3\ntrial/12\n");
  for (const char* step : {"12", "trial/3", "trial/12"}) ExpectReads(step, 1);
  SaveEverything(13, 1);
  SaveEverything(14, 2);
  ASSERT_OK(store_->Delete(13));
  ASSERT_OK(store_->Collect({.min_dead_fraction = 0}).status());
  ExpectReads("14", 75);
}

}  // namespace
}  // namespace ckptree::testing
