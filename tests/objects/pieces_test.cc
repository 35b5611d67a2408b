// SPDX-License-Identifier: Apache-2.0

// Pieces of a source: which are sent at once, and what ends them.

#include "kv/objects/pieces.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/objects/fixture.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree::kv {
namespace {

using ::ckptree::testing::ByteAt;
using ::ckptree::testing::IsOk;
using ::ckptree::testing::PatternSource;
using ::testing::ElementsAre;

constexpr std::uint64_t kPiece = 1000;
constexpr std::size_t kAtOnce = 4;
// Only a hang reaches it.
constexpr absl::Duration kLong = absl::Minutes(2);

// What arrived, by the numbers of the pieces.
class Arrived {
 public:
  void Take(std::uint64_t number, std::string_view bytes) {
    const std::scoped_lock lock(mu_);
    EXPECT_TRUE(pieces_.emplace(number, bytes).second) << number;
  }
  std::string All() const {
    std::string all;
    for (const auto& [number, bytes] : pieces_) all += bytes;
    return all;
  }
  std::size_t count() const { return pieces_.size(); }

 private:
  std::mutex mu_;
  std::map<std::uint64_t, std::string> pieces_;
};

std::string Pattern(std::size_t size) {
  std::string bytes;
  for (std::size_t i = 0; i < size; ++i) {
    bytes.push_back(static_cast<char>(ByteAt(i, 0)));
  }
  return bytes;
}

TEST(PiecesTest, AllOfItIsSentAndTheLastPieceIsShorter) {
  for (const std::size_t size :
       std::vector<std::size_t>{0, 1, 999, 1000, 1001, 10'000, 12'345}) {
    Arrived arrived;
    EXPECT_THAT(SendPieces(PatternSource(size, 0), kPiece, kAtOnce,
                           [&](std::uint64_t number, std::string_view bytes) {
                             arrived.Take(number, bytes);
                             return absl::OkStatus();
                           }),
                IsOk());
    EXPECT_EQ(arrived.count(), (size + kPiece - 1) / kPiece);
    EXPECT_EQ(arrived.All(), Pattern(size)) << size;
  }
}

TEST(PiecesTest, SoManyAreSentAtOnceAndNoMore) {
  std::atomic<int> now = 0;
  // Nobody gets past it alone: that many are being sent.
  std::latch together(kAtOnce);
  const auto send = [&](std::uint64_t number, std::string_view) {
    EXPECT_LE(++now, static_cast<int>(kAtOnce));
    if (number < kAtOnce) together.arrive_and_wait();
    --now;
    return absl::OkStatus();
  };
  EXPECT_THAT(SendPieces(PatternSource(20 * kPiece, 0), kPiece, kAtOnce, send),
              IsOk());
}

TEST(PiecesTest, OnePieceThatIsNotAnsweredKeepsNoOther) {
  absl::Notification all_others;
  std::atomic<int> others = 0;
  const auto send = [&](std::uint64_t number, std::string_view) {
    if (number == 1) {
      EXPECT_TRUE(all_others.WaitForNotificationWithTimeout(kLong));
    } else if (++others == 19) {
      all_others.Notify();
    }
    return absl::OkStatus();
  };
  EXPECT_THAT(SendPieces(PatternSource(20 * kPiece, 0), kPiece, kAtOnce, send),
              IsOk());
  EXPECT_EQ(others, 19);
}

TEST(PiecesTest, IsReadInOrderByOneAtATime) {
  PatternSource source(20 * kPiece, 0);
  std::vector<std::uint64_t> offsets, wanted;
  std::atomic<int> readers = 0;
  source.on_read = [&](std::uint64_t offset) {
    EXPECT_EQ(++readers, 1);
    offsets.push_back(offset);
    --readers;
    return absl::OkStatus();
  };
  for (std::uint64_t i = 0; i < 20; ++i) wanted.push_back(i * kPiece);
  EXPECT_THAT(SendPieces(source, kPiece, kAtOnce,
                         [](std::uint64_t, std::string_view) {
                           return absl::OkStatus();
                         }),
              IsOk());
  EXPECT_EQ(offsets, wanted);
}

TEST(PiecesTest, AnErrorEndsIt) {
  PatternSource source(1000 * kPiece, 0);
  std::atomic<int> sent = 0;
  const auto send = [&](std::uint64_t number, std::string_view) {
    ++sent;
    return number == 5 ? absl::UnavailableError("lost") : absl::OkStatus();
  };
  // One thread: what comes behind it is not sent.
  EXPECT_EQ(SendPieces(source, kPiece, 1, send),
            absl::UnavailableError("lost"));
  EXPECT_EQ(sent, 6);
  // Others that are being sent go to their end.
  EXPECT_EQ(SendPieces(source, kPiece, kAtOnce, send),
            absl::UnavailableError("lost"));

  source.on_read = [](std::uint64_t offset) {
    return offset >= 3 * kPiece ? absl::DataLossError("the source is bad")
                                : absl::OkStatus();
  };
  std::vector<std::uint64_t> numbers;
  EXPECT_EQ(SendPieces(source, kPiece, 1,
                       [&](std::uint64_t number, std::string_view) {
                         numbers.push_back(number);
                         return absl::OkStatus();
                       }),
            absl::DataLossError("the source is bad"));
  EXPECT_THAT(numbers, ElementsAre(0, 1, 2));
}

TEST(PiecesTest, AThreadWithoutMemoryIsAnError) {
  const auto send = [](std::uint64_t number, std::string_view) {
    if (number == 7) throw std::bad_alloc();
    return absl::OkStatus();
  };
  EXPECT_EQ(
      SendPieces(PatternSource(20 * kPiece, 0), kPiece, kAtOnce, send).code(),
      absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace ckptree::kv
