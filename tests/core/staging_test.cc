// SPDX-License-Identifier: Apache-2.0

// When the caller's memory is free again, and what is said of it.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "core/save/staged_content.h"
#include "tests/core/fixture.h"
#include "tests/core/waiting_tensor.h"

namespace ckptree::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class StagingTest : public CoreTest {
 protected:
  // Save 1, whose turn does not end before `go`; the saves behind it wait.
  SaveHandle StartGate(absl::Notification& go) {
    StoreOptions options = Options();
    options.threads = 4;  // One of them waits for `go`.
    Open(std::move(options));
    StepBuilder builder = store_->Begin(1);
    builder.Put("gate", WaitingFor(go), Ownership::kBorrow);
    return std::move(builder).Submit();
  }
  SaveHandle SubmitCopied(std::int64_t step, CopyFn copy,
                          Ownership ownership = Ownership::kCopy) {
    StepBuilder builder = store_->Begin(step);
    Tensor tensor;
    tensor.dtype = DType::kUint8;
    tensor.shape = {static_cast<std::int64_t>(large_.size())};
    tensor.copy = std::move(copy);
    builder.Put("w", std::move(tensor), ownership);
    return std::move(builder).Submit();
  }

  const Bytes large_ = RandomBytes(2 << 20, 2);
};

// One buffer for all steps, changed right after each Commit(): every step but
// the last had the bytes of another.
TEST_F(StagingTest, CommitReturnsWhenWhatItWasGivenIsCopied) {
  std::vector<Bytes> wanted;
  for (std::uint64_t step = 0; step < 10; ++step) {
    wanted.push_back(RandomBytes(large_.size(), step));
  }
  for (const std::size_t staging_bytes : {std::size_t{64} << 20, kChunk}) {
    StoreOptions options = Options();
    options.staging_bytes = staging_bytes;
    Open(options);
    Bytes buffer(large_.size());
    std::vector<SaveHandle> saves;
    const std::int64_t first = StepNumbers().empty() ? 0 : 100;
    for (std::int64_t step = first; step < first + 10; ++step) {
      const Bytes& bytes = wanted[static_cast<std::size_t>(step - first)];
      std::copy(bytes.begin(), bytes.end(), buffer.begin());
      // Beside it one that is lent, and one that is small.
      StepBuilder builder = store_->Begin(step);
      builder.Put("w", Uint8s(buffer))
          .Put("lent", Uint8s(large_), Ownership::kBorrow)
          .Put(
              "small",
              {.dtype = DType::kUint8, .shape = {1000}, .data = buffer.data()});
      saves.push_back(std::move(builder).Commit());
    }
    std::fill(buffer.begin(), buffer.end(), std::byte{0});
    for (SaveHandle& save : saves) EXPECT_OK(save.WaitCommitted(kLong));
    for (std::int64_t step = first; step < first + 10; ++step) {
      Bytes bytes = wanted[static_cast<std::size_t>(step - first)];
      EXPECT_TRUE(Read(AtStep(step)) == bytes) << step;
      bytes.resize(1000);
      EXPECT_TRUE(Read(AtStep(step), "small") == bytes) << step;
      EXPECT_TRUE(Read(AtStep(step), "lent") == large_) << step;
    }
  }
}

// The caller waits for the copy: nothing of the save is worked on before its
// end, asked for at each piece.
TEST_F(StagingTest, ASaveBeginsWhenItsCopyEnds) {
  absl::Notification submitted;
  SaveHandle save;
  std::atomic<int> asked = 0;
  std::atomic<std::uint64_t> compared = 0;
  StoreOptions options = Options();
  options.threads = 2;
  options.host_allocator = {
      [&](std::size_t bytes) {
        submitted.WaitForNotification();
        asked.fetch_add(1);
        compared.fetch_add(save.Progress().bytes_compared);
        return std::malloc(bytes);
      },
      [](void* memory, std::size_t) { std::free(memory); }};
  Open(std::move(options));
  const Bytes bytes = RandomBytes(64 * kChunk + (16 << 20), 3);
  StepBuilder builder = store_->Begin(1);
  builder.Put("w", Uint8s(bytes));
  save = std::move(builder).Submit();
  submitted.Notify();
  EXPECT_OK(save.WaitCommitted(kLong));
  EXPECT_GE(asked.load(), 16);
  EXPECT_EQ(compared.load(), 0);
  EXPECT_TRUE(Read(AtStep(1)) == bytes);
  Open();  // Before what the allocator uses goes.
}

TEST_F(StagingTest, SubmitDoesNotWait) {
  absl::Notification go;
  SaveHandle save =
      SubmitCopied(1, [&](std::uint64_t at, std::span<std::byte> to) {
        go.WaitForNotification();
        std::copy_n(large_.begin() + static_cast<std::ptrdiff_t>(at), to.size(),
                    to.begin());
        return absl::OkStatus();
      });
  EXPECT_THAT(save.WaitStaged(absl::ZeroDuration()),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  go.Notify();
  EXPECT_OK(save.WaitCommitted(kLong));
  EXPECT_TRUE(Read(AtStep(1)) == large_);
}

TEST_F(StagingTest, CopiedMemoryIsFreeOnceStaged) {
  absl::Notification go;
  SaveHandle gate = StartGate(go);
  Bytes bytes = large_;
  SaveHandle save = Start(2, bytes);
  EXPECT_OK(save.WaitStaged(kLong));
  std::fill(bytes.begin(), bytes.end(), std::byte{0});
  go.Notify();
  EXPECT_OK(gate.WaitCommitted(kLong));
  EXPECT_OK(save.WaitCommitted(kLong));
  EXPECT_TRUE(Read(AtStep(2)) == large_);
}

TEST_F(StagingTest, BorrowedMemoryIsReadInPlace) {
  absl::Notification go;
  SaveHandle gate = StartGate(go);
  Bytes bytes = large_;
  StepBuilder builder = store_->Begin(2);
  builder.Put("w", Uint8s(bytes), Ownership::kBorrow);
  // What is lent is not waited for.
  SaveHandle save = std::move(builder).Commit();
  EXPECT_THAT(save.WaitStaged(absl::ZeroDuration()),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(store_->GetStats().staging_bytes_in_use, 0u);
  go.Notify();
  EXPECT_OK(gate.WaitCommitted(kLong));
  EXPECT_OK(save.WaitStaged(kLong));
  std::fill(bytes.begin(), bytes.end(), std::byte{0});
  EXPECT_OK(save.WaitCommitted(kLong));
  EXPECT_TRUE(Read(AtStep(2)) == large_);
  EXPECT_EQ(store_->GetStats().bytes_staged, 0u);
  ExpectClean();
}

// What failed gave its memory back, and only then said that it had failed:
// who waited for the memory was told that all is well.
TEST_F(StagingTest, WhoWaitsForTheMemoryIsToldWhyTheSaveFailed) {
  for (std::int64_t step = 0; step < 200; ++step) {
    SaveHandle save = SubmitCopied(
        step,
        [](std::uint64_t, std::span<std::byte>) {
          return absl::InternalError("the device is gone");
        },
        step % 2 == 0 ? Ownership::kBorrow : Ownership::kCopy);
    EXPECT_THAT(
        save.WaitStaged(kLong),
        StatusIs(absl::StatusCode::kInternal, HasSubstr("the device is gone")));
  }
  EXPECT_THAT(StepNumbers(), IsEmpty());
}

TEST_F(StagingTest, WhatIsGivenUpIsNotStaged) {
  StagingPool pool(1 << 20);
  for (const Ownership ownership : {Ownership::kBorrow, Ownership::kCopy}) {
    internal::ContentBuilder builder(kChunk);
    ASSERT_OK(builder.AddTensor(At("w"), Uint8s(large_), ownership));
    absl::StatusOr<internal::StepContent> content = std::move(builder).Finish();
    ASSERT_OK(content);
    int staged = 0, copied = 0;
    internal::StagedContent given(
        *std::move(content), kChunk, &pool, [&] { ++staged; },
        [&] { ++copied; });
    ASSERT_OK(given.StageInline());
    ASSERT_OK(given.Stage(0));
    const int lent = ownership == Ownership::kBorrow ? 1 : 0;
    EXPECT_EQ(copied, lent);
    given.Abandon();
    EXPECT_EQ(staged, 0);
    EXPECT_EQ(copied, lent);
  }
}

}  // namespace
}  // namespace ckptree::testing
