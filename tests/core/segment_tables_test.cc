// SPDX-License-Identifier: Apache-2.0

// The end of a file of chunks is gone, and with it the table of its segment:
// the open for writing that makes the index anew makes that anew, too.

#include "core/version/segment_tables.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "core/engine/engine.h"
#include "core/engine/store_engine.h"
#include "core/version/open_check.h"
#include "schema/keys.h"
#include "schema/segment_record.h"
#include "tests/core/fixture.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;
using schema::Space;

constexpr std::size_t kBytes = std::size_t{3} << 20;

class SegmentTablesTest : public CoreTest {
 protected:
  // A large array, and leaves that are packed, in one segment for each step.
  absl::Status SaveBoth(std::int64_t step, const Bytes& large,
                        const Bytes& small) {
    StepBuilder builder = store_->Begin(step);
    builder.Put("w", Array(DType::kUint8, {64, kBytes / 64}, large));
    for (int i = 0; i < 8; ++i) {
      builder.Put("small/" + std::to_string(i), Uint8s(small));
    }
    return Commit(std::move(builder));
  }

  void SetUp() override {
    options_.threads = 1;
    Open(options_);
    ASSERT_OK(SaveBoth(1, first_, RandomBytes(3000, 3)));
    ASSERT_OK(SaveBoth(2, second_, RandomBytes(3000, 4)));
    store_.reset();
    fs::copy(path(), kept_, fs::copy_options::recursive);
    Open(options_);
    tables_ = Tables();
    store_.reset();
  }

  const kv::Database& database() {
    return internal::StoreEngine::Of(*store_).database();
  }

  // The tables of all segments of chunks, by key.
  std::map<std::string, std::string> Tables() {
    std::map<std::string, std::string> tables;
    const std::vector<kv::LiveFile> files =
        internal::SortedLiveFiles(database()).value();
    for (const kv::LiveFile& file : files) {
      if (file.space != Space::kChunks) continue;
      const auto value = database().Read(Space::kChunks, file.last_key);
      EXPECT_OK(value);
      if (value.ok()) tables[file.last_key] = value->view();
    }
    return tables;
  }

  static std::string ReadAll(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // All from `offset` on.
  static void Zero(const fs::path& file, std::size_t offset) {
    std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
    out.seekp(static_cast<std::streamoff>(offset));
    out << std::string(fs::file_size(file) - offset, '\0');
  }

  // What the open made of the store, and that all of it is whole then.
  void ExpectMended(std::size_t unproven_tables) {
    Open(options_);
    std::size_t tables = 0;
    for (const std::string& key : database().report().unproven) {
      tables += tables_.count(key);
    }
    EXPECT_EQ(tables, unproven_tables);  // The damage was met.
    EXPECT_TRUE(Read(AtStep(1)) == first_);
    EXPECT_TRUE(Read(AtStep(2)) == second_);
    Open(options_);
    ExpectClean();
    EXPECT_TRUE(Tables() == tables_);
  }

  StoreOptions options_ = Options();
  const Bytes first_ = RandomBytes(kBytes, 1);
  const Bytes second_ = RandomBytes(kBytes, 2);
  const std::string kept_ = dir_ / "kept";
  std::map<std::string, std::string> tables_;
};

TEST_F(SegmentTablesTest, ATableThatDamageTookIsMadeAnew) {
  ASSERT_GE(tables_.size(), 2);
  int tried = 0;
  for (const auto& [key, table] : tables_) {
    for (const auto& entry : fs::directory_iterator(kept_ + "/db")) {
      if (entry.path().extension() != ".sst") continue;
      const std::size_t at = ReadAll(entry.path()).find(table);
      if (at == std::string::npos) continue;
      ++tried;
      for (const std::size_t from : {at + table.size() / 2, at}) {
        SCOPED_TRACE(from - at);
        store_.reset();
        fs::remove_all(path());
        fs::copy(kept_, path(), fs::copy_options::recursive);
        Zero(fs::path(path()) / "db" / entry.path().filename(), from);
        ExpectMended(1);
      }
    }
  }
  EXPECT_EQ(tried, tables_.size());
}

}  // namespace
}  // namespace ckptree::testing
