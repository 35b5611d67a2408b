// SPDX-License-Identifier: Apache-2.0

// Views of arrays whose table has one flipped bit, wherever it is: what is
// whole is shown, what is not is refused by name, and the process lives.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <new>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_format.h"
#include "tests/core/fixture.h"

namespace ckptree::testing {
namespace {

using ::testing::HasSubstr;

struct Flip {
  std::size_t at = 0;
  int bit = 0;
  bool of_bytes = false;  // A byte of the array hangs on it.
  bool of_table = false;  // It is behind all blocks of records.
};

// A block of one record: where it, its value and what follows that begin.
struct Block {
  std::size_t begin = 0;
  std::size_t value = 0;
  std::size_t tail = 0;
  std::size_t end = 0;
};

constexpr std::size_t kKeyBytes = 14;  // Behind it: sequence and type.
constexpr std::string_view kSuffix("\1\0\0\0\0\0\0\0", 8);
constexpr std::size_t kTailBytes = 4 + 4 + 1 + 4;  // Restarts, type, checksum.
constexpr std::size_t kFooterBytes = 53;

// Those of array bytes of the first version, as they were written.
std::vector<Block> BlocksIn(std::string_view table) {
  const std::string version("\0\0\0\0\0\0\0\1", 8);
  std::vector<Block> blocks;
  for (std::size_t at = 0; at + 64 < table.size(); ++at) {
    if (table[at] != 0 || table[at + 1] != kKeyBytes + kSuffix.size()) continue;
    std::size_t size = 0;
    std::size_t key = at + 2;
    for (int shift = 0; shift < 28; shift += 7) {
      const auto byte = static_cast<unsigned char>(table[key++]);
      size |= std::size_t{byte & 0x7fu} << shift;
      if (byte < 0x80) break;
    }
    const std::size_t value = key + kKeyBytes + kSuffix.size();
    if (!table.substr(key).starts_with(version) ||
        table.substr(key + kKeyBytes, kSuffix.size()) != kSuffix ||
        value + size + kTailBytes > table.size()) {
      continue;
    }
    blocks.push_back({at, value, value + size, value + size + kTailBytes});
    at = blocks.back().end - 1;
  }
  return blocks;
}

// What a process that crashed had before it; shared with its parent.
struct Progress {
  std::size_t flip = 0;
  std::size_t shown = 0;
  std::size_t refused = 0;
};

class ViewDamageTest : public ::testing::TestWithParam<Coding> {
 protected:
  ViewDamageTest() {
    void* const shared = mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    progress_ = new (shared) Progress;
  }
  ~ViewDamageTest() override { munmap(progress_, sizeof(Progress)); }

  // In a process of its own: this one has no threads of the engine.
  void InChild(const std::function<void()>& work) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      work();
      std::fflush(stdout);
      _exit(HasFailure() ? 1 : 0);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    ASSERT_FALSE(WIFSIGNALED(status))
        << "signal " << WTERMSIG(status) << " at flip " << progress_->flip;
    ASSERT_EQ(WEXITSTATUS(status), 0) << "see above";
  }

  static StoreOptions Options() {
    StoreOptions options = QuietOptions();
    options.chunk_bytes = 1 << 20;
    options.coding = GetParam();
    return options;
  }

  void Make() {
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0, 0.02f);
    for (std::size_t at = 0; at < bytes_.size(); at += sizeof(float)) {
      const float value = normal(random);
      std::memcpy(bytes_.data() + at, &value, sizeof(float));
    }
    InChild([&] {
      ASSERT_OK_AND_ASSIGN(Store store, Store::Open(store_, Options()));
      StepBuilder step = store.Begin(1);
      const auto floats = static_cast<std::int64_t>(bytes_.size() / 4);
      step.Put("weights", Array(DType::kFloat32, {floats}, bytes_));
      ASSERT_OK(std::move(step).Commit().WaitCommitted(kLong));
      ASSERT_OK(store.Close());
    });
    for (const auto& entry :
         std::filesystem::directory_iterator(store_ + "/db")) {
      if (entry.path().extension() != ".sst" ||
          entry.file_size() <= table_.size()) {
        continue;
      }
      path_ = entry.path();
      table_.resize(entry.file_size());
      std::ifstream(path_, std::ios::binary)
          .read(table_.data(), static_cast<std::streamsize>(table_.size()));
    }
  }

  // All bits around the value of a block, some of it, and some of the table's
  // own blocks.
  std::vector<Flip> Flips() const {
    const std::vector<Block> blocks = BlocksIn(table_);
    std::vector<Flip> flips;
    const auto add = [&flips](std::size_t begin, std::size_t end, bool bytes) {
      for (std::size_t at = begin; at < end; ++at) {
        for (int bit = 0; bit < 8; ++bit)
          flips.push_back({at, bit, bytes, false});
      }
    };
    // The first and the last record of a segment have no array bytes.
    const Block& last = blocks[blocks.size() - 2];
    add(last.begin, last.value, false);
    for (std::size_t at = last.value; at < last.tail; at += 30011) {
      flips.push_back({at, static_cast<int>(at % 8), true, false});
    }
    add(last.tail - 2, last.tail, true);
    add(last.tail, last.end, false);
    for (std::size_t at = blocks.back().end; at < table_.size(); at += 7) {
      flips.push_back({at, static_cast<int>(at / 7 % 8), false, true});
    }
    for (std::size_t at = table_.size() - kFooterBytes; at < table_.size();
         ++at) {
      flips.push_back({at, static_cast<int>(at % 8), false, true});
    }
    return flips;
  }

  void Write(std::size_t at, char byte) const {
    const int file = open(path_.c_str(), O_WRONLY | O_CLOEXEC);
    ASSERT_EQ(pwrite(file, &byte, 1, static_cast<off_t>(at)), 1);
    close(file);
  }

  void Look(const Flip& flip) {
    ASSERT_OK_AND_ASSIGN(const Store store,
                         Store::Open(store_, ToRead(Options())));
    ASSERT_OK_AND_ASSIGN(const Step step, store.OpenStep(1));
    const absl::StatusOr<LeafView> view = step.View("weights");
    if (flip.of_bytes) {
      ++progress_->refused;
      EXPECT_THAT(view,
                  StatusIs(absl::StatusCode::kDataLoss, HasSubstr("weights")));
      return;
    }
    ASSERT_OK(view);
    Bytes bytes;
    for (const LeafView::Piece& piece : view->pieces()) {
      bytes.insert(bytes.end(), piece.bytes.begin(), piece.bytes.end());
    }
    EXPECT_TRUE(bytes == bytes_);
    ++progress_->shown;
    // Damage beside bytes that their digest proves costs no copy of them. A
    // table that RocksDB cannot open is read anew into memory.
    if (GetParam() == Coding::kNone && !flip.of_table) {
      EXPECT_TRUE(view->zero_copy());
    }
  }

  TempDir dir_;
  const std::string store_ = dir_ / "store";
  Bytes bytes_ = Bytes(2 << 20);
  std::string path_;
  std::string table_;
  Progress* progress_ = nullptr;
};

TEST_P(ViewDamageTest, NoBitEndsTheProcess) {
  ASSERT_NO_FATAL_FAILURE(Make());
  ASSERT_GE(BlocksIn(table_).size(), 3u);
  const std::vector<Flip> flips = Flips();
  ASSERT_NO_FATAL_FAILURE(InChild([&] {
    for (std::size_t i = 0; i < flips.size() && !HasFailure(); ++i) {
      const Flip& flip = flips[i];
      SCOPED_TRACE(absl::StrFormat("flip %d: bit %d of byte %d of %d", i,
                                   flip.bit, flip.at, table_.size()));
      progress_->flip = i;
      Write(flip.at, static_cast<char>(table_[flip.at] ^ (1 << flip.bit)));
      Look(flip);
      Write(flip.at, table_[flip.at]);
    }
  }));
  EXPECT_EQ(progress_->shown + progress_->refused, flips.size());
  EXPECT_GE(progress_->refused, 16u);
}

INSTANTIATE_TEST_SUITE_P(Codings, ViewDamageTest,
                         ::testing::Values(Coding::kNone, Coding::kPlanes));

}  // namespace
}  // namespace ckptree::testing
