// SPDX-License-Identifier: Apache-2.0

// One store and many threads of the caller. The preset `tsan` looks on.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tests/core/fixture.h"

namespace ckptree::testing {
namespace {

constexpr int kThreads = 4;
constexpr int kSteps = 8;  // Of each thread.

class ThreadsTest : public CoreTest {
 protected:
  // Small ones ride in their batch, large ones are segments.
  static Bytes Content(std::int64_t step) {
    return RandomBytes(step % 3 == 0 ? 1'500'000 : 40'000,
                       static_cast<std::uint64_t>(step));
  }

  // `body` with 0, 1, ... at once; then all are done.
  static void AtOnce(int threads, const std::function<void(int)>& body) {
    std::vector<std::thread> running;
    running.reserve(static_cast<std::size_t>(threads));
    for (int i = 0; i < threads; ++i) running.emplace_back(body, i);
    for (std::thread& thread : running) thread.join();
  }

  void ExpectSteps(std::int64_t count) {
    ASSERT_EQ(StepNumbers().size(), static_cast<std::size_t>(count));
    for (std::int64_t step = 0; step < count; ++step) {
      EXPECT_EQ(Read(AtStep(step)), Content(step)) << step;
    }
    ExpectClean();
  }
};

TEST_F(ThreadsTest, Save) {
  std::atomic<int> called{0};
  AtOnce(kThreads, [&](int thread) {
    for (int i = 0; i < kSteps; ++i) {
      const std::int64_t step = thread * kSteps + i;
      const Bytes bytes = Content(step);
      StepBuilder builder = store_->Begin(step);
      builder.Put("w", Uint8s(bytes),
                  i % 2 == 0 ? Ownership::kCopy : Ownership::kBorrow);
      SaveHandle save = std::move(builder).Commit();
      save.OnCommitted(
          [&](const absl::Status& status) { called += status.ok() ? 1 : 0; });
      EXPECT_OK(save.WaitStaged(kLong));
      if (i % 4 != 0) {
        EXPECT_OK(save.WaitCommitted(kLong));
      }
      EXPECT_EQ(save.Progress().step, step);
    }
  });
  ASSERT_OK(store_->Flush());
  EXPECT_EQ(called, kThreads * kSteps);
  ExpectSteps(kThreads * kSteps);
}

TEST_F(ThreadsTest, RestoreBesideSaves) {
  ASSERT_OK(Save(0, Content(0)));
  std::atomic<std::int64_t> newest{0};
  std::atomic<bool> done{false};
  std::atomic<int> read{0};
  AtOnce(kThreads, [&](int thread) {
    if (thread == 0) {
      for (std::int64_t step = 1; step < 2 * kSteps; ++step) {
        EXPECT_OK(Save(step, Content(step)));
        newest = step;
      }
      done = true;
      return;
    }
    for (bool last = false; !last;) {
      last = done;
      const std::int64_t step = newest;
      const Bytes expected = Content(step);
      const auto restored = store_->OpenStep(AtStep(step));
      ASSERT_OK(restored);
      Bytes bytes(expected.size());
      const ReadRequest request{.path = At("w"), .destination = bytes};
      EXPECT_OK(restored->ReadMany(std::span(&request, 1)));
      EXPECT_EQ(bytes, expected);
      EXPECT_OK(restored->View(At("w")));
      EXPECT_OK(store_->Steps());
      EXPECT_GE(store_->GetStats().saves_committed, 1u);
      ++read;
    }
  });
  EXPECT_GE(read, kThreads - 1);
  ExpectSteps(2 * kSteps);
}

TEST_F(ThreadsTest, TagPinDeleteAndVerifyBesideSaves) {
  ASSERT_OK(Save(1'000, Content(1)));
  AtOnce(kThreads, [&](int thread) {
    for (int i = 0; i < kSteps; ++i) {
      const std::int64_t step = thread * kSteps + i;
      EXPECT_OK(Save(step, Content(step)));
      const std::string tag = "t" + std::to_string(thread);
      EXPECT_OK(store_->Tag(tag, step, {.move = true}));
      EXPECT_OK(store_->Pin(step));
      EXPECT_EQ(store_->Resolve(Tagged(tag))->step, step);
      EXPECT_FALSE(store_->Delete(step).ok());
      EXPECT_OK(store_->Unpin(step));
      const std::int64_t other = 2'000 + step;
      EXPECT_OK(Save(other, Content(step)));
      EXPECT_OK(store_->Delete(other));
      if (thread == 0) {
        VerifyOptions options;
        options.level = i % 2 == 0 ? VerifyOptions::Level::kQuick
                                   : VerifyOptions::Level::kDeep;
        const auto report = store_->Verify(options);
        ASSERT_OK(report);
        for (const Finding& finding : report->findings) {
          ADD_FAILURE() << finding.what;
        }
      }
    }
  });
  ASSERT_OK(store_->Delete(1'000));
  ExpectSteps(kThreads * kSteps);
}

TEST_F(ThreadsTest, CollectBesideSavesAndReaders) {
  StoreOptions options = Options();
  options.collect = true;  // The background, and a thread of ours.
  Open(options);
  // Every other chunk changes with every other step: files are half dead.
  const auto content = [](std::int64_t step) {
    Bytes bytes = RandomBytes(1'500'000, 1);
    const Bytes fresh = RandomBytes(kChunk, static_cast<std::uint64_t>(step));
    const std::size_t first = step % 2 == 0 ? 0 : kChunk;
    for (std::size_t at = first; at + kChunk <= bytes.size();
         at += 2 * kChunk) {
      std::copy(fresh.begin(), fresh.end(),
                bytes.begin() + static_cast<std::ptrdiff_t>(at));
    }
    return bytes;
  };
  constexpr std::int64_t kLast = 3 * kSteps;
  ASSERT_OK(Save(0, content(0)));
  std::atomic<std::int64_t> newest{0};
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> collected{0}, read{0};
  AtOnce(kThreads, [&](int thread) {
    if (thread == 0) {
      for (std::int64_t step = 1; step <= kLast; ++step) {
        EXPECT_OK(Save(step, content(step)));
        newest = step;
        if (step >= 2) {
          EXPECT_OK(store_->Delete(step - 2));
        }
      }
      done = true;
      return;
    }
    while (!done) {
      if (thread == 1) {
        const auto report = store_->Collect({.min_dead_fraction = 0});
        ASSERT_OK(report);
        collected += report->versions;
        EXPECT_OK(store_->Usage());
        continue;
      }
      const std::int64_t step = newest;
      const auto restored = store_->OpenStep(AtStep(step));
      if (!restored.ok()) {  // Deleted since.
        EXPECT_TRUE(absl::IsNotFound(restored.status())) << restored.status();
        continue;
      }
      // From here on it stays.
      const Bytes expected = content(step);
      const auto value = restored->Value("w");
      ASSERT_OK(value);
      EXPECT_EQ(value->bytes, expected);
      const auto view = restored->View(At("w"));
      ASSERT_OK(view);
      Bytes seen;
      for (const LeafView::Piece& piece : view->pieces()) {
        seen.insert(seen.end(), piece.bytes.begin(), piece.bytes.end());
      }
      EXPECT_EQ(seen, expected);
      ++read;
    }
  });
  EXPECT_GT(read, 0u);
  const auto report = store_->Collect({.min_dead_fraction = 0});
  ASSERT_OK(report);
  EXPECT_TRUE(report->kept.empty());
  EXPECT_EQ(StepNumbers().size(), 2u);
  EXPECT_EQ(Read(AtStep(kLast)), content(kLast));
  EXPECT_EQ(Read(AtStep(kLast - 1)), content(kLast - 1));
  ExpectClean();
}

TEST_F(ThreadsTest, CancelAndCloseBesideSaves) {
  std::vector<SaveHandle> saves(kThreads * kSteps);
  AtOnce(kThreads, [&](int thread) {
    for (int i = 0; i < kSteps; ++i) {
      const int step = thread * kSteps + i;
      SaveHandle& save = saves[static_cast<std::size_t>(step)];
      const Bytes bytes = Content(step);  // Until it is staged.
      save = Start(step, bytes);
      if (i % 2 == 1) save.Cancel();
      const absl::Status staged = save.WaitStaged(kLong);
      EXPECT_TRUE(staged.ok() || absl::IsCancelled(staged)) << staged;
    }
  });
  const absl::Status closed = store_->Close();
  EXPECT_TRUE(closed.ok() || absl::IsCancelled(closed)) << closed;
  int committed = 0;
  for (SaveHandle& save : saves) {
    const absl::Status status = save.WaitCommitted(kLong);
    EXPECT_TRUE(status.ok() || absl::IsCancelled(status)) << status;
    committed += status.ok() ? 1 : 0;
  }
  Open();
  EXPECT_EQ(StepNumbers().size(), static_cast<std::size_t>(committed));
  ExpectClean();
}

}  // namespace
}  // namespace ckptree::testing
