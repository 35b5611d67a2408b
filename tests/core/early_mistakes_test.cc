// SPDX-License-Identifier: Apache-2.0

// What one call shows to be wrong is said by StepBuilder::status() at once, and
// not at the end of the save: limits, and ties to what is no leaf.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schema/limits.h"
#include "tests/core/fixture.h"

namespace ckptree::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

class EarlyMistakesTest : public CoreTest {
 protected:
  // The mistake that `put` makes, which the save tells, too.
  absl::Status Mistake(const std::function<void(StepBuilder&)>& put) {
    StepBuilder step = store_->Begin(7);
    put(step);
    const absl::Status early = step.status();
    const absl::Status late = Commit(std::move(step));
    if (!early.ok()) {
      EXPECT_THAT(late, StatusIs(early.code(),
                                 HasSubstr(std::string(early.message()))));
    }
    EXPECT_THAT(StepNumbers(), IsEmpty());
    return late;
  }

  const Bytes byte_ = RandomBytes(1, 1);
};

// Each within its limit, and too much together: said by the call that gives too
// much, be that a metric or the note.
TEST_F(EarlyMistakesTest, MetricsAndNoteTogether) {
  const auto name = [](int i, std::size_t size) {
    return std::string(size - 2, 'm') + std::to_string(10 + i);
  };
  for (const bool note_first : {false, true}) {
    EXPECT_THAT(
        Mistake([&](StepBuilder& step) {
          if (note_first) step.SetNote(std::string(512, 'n'));
          // All but the last have room: 12 x 140 and a note of 515.
          for (int i = 0; i < 9; ++i) step.SetMetric(name(i, 126), i);
          if (!note_first) {
            step.SetMetric(name(9, 126), 9).SetMetric(name(10, 126), 9);
            step.SetMetric(name(11, 126), 9);
          }
          EXPECT_OK(step.status());
          if (note_first) {
            for (int i = 9; i < 16; ++i) step.SetMetric(name(i, 126), i);
          } else {
            step.SetNote(std::string(512, 'n'));
          }
          EXPECT_THAT(step.status(),
                      StatusIs(kInvalid, HasSubstr("metrics and the note")));
        }),
        StatusIs(kInvalid,
                 AllOf(HasSubstr("at most 1856"), HasSubstr("shorter names"))));
  }
  // A name that is given again, and a note, count once.
  StepBuilder step = store_->Begin(9);
  for (int twice = 0; twice < 2; ++twice) {
    for (int i = 0; i < 16; ++i) step.SetMetric(name(i, 66), i);
    step.SetNote(std::string(512, 'n'));
  }
  EXPECT_OK(step.status());
}

TEST_F(EarlyMistakesTest, TagsThatAreTooLong) {
  const std::string most(std::size_t{schema::kMaxEntryTagBytes}, 't');
  const auto put_all = [&](StepBuilder& step, const std::string& tag, int one) {
    Tensor tensor = Uint8s(byte_);
    tensor.tag = tag;
    if (one == 0) step.PutProto("a/p", tag, "");
    if (one == 1) step.PutNode("a/n", EntryKind::kCustom, tag);
    if (one == 2) step.Put("a/t", tensor);
  };
  for (const int one : {0, 1, 2}) {
    EXPECT_THAT(Mistake([&](StepBuilder& step) {
                  put_all(step, most + "t", one);
                  EXPECT_THAT(step.status(), StatusIs(kInvalid));
                }),
                StatusIs(kInvalid, AllOf(HasSubstr(": a/"),
                                         HasSubstr("a tag of 4097 bytes"),
                                         HasSubstr("at most 4096"))));
  }
  // At the limit, and after each other: of one tag or another.
  StepBuilder fits = store_->Begin(9);
  for (const int one : {0, 1, 2}) put_all(fits, most, one);
  EXPECT_OK(fits.status());
}

// What a tie is to be is known when it is put, but for what is put later.
TEST_F(EarlyMistakesTest, TiesThatAreNone) {
  const auto early = [this](const std::function<void(StepBuilder&)>& put) {
    return Mistake([&](StepBuilder& step) {
      step.PutInt("a/i", 1);
      put(step);
      EXPECT_THAT(step.status(), StatusIs(kInvalid));
    });
  };
  EXPECT_THAT(early([](StepBuilder& step) { step.Tie("a/x", "a/x"); }),
              StatusIs(kInvalid, HasSubstr("a/x is tied to itself")));
  EXPECT_THAT(
      early(
          [](StepBuilder& step) { step.Tie("a/x", "a/i").Tie("a/y", "a/x"); }),
      StatusIs(kInvalid, HasSubstr("a/y is tied to a/x, which is no leaf")));
  EXPECT_THAT(early([](StepBuilder& step) {
                step.PutNode("a/n", EntryKind::kDict).Tie("a/y", "a/n");
              }),
              StatusIs(kInvalid, HasSubstr("a/n, which is no leaf")));
  EXPECT_THAT(early([](StepBuilder& step) {
                step.Tie("a/x", "a/i").Tie("a/x", "a/i");
              }),
              StatusIs(kInvalid, HasSubstr("a/x was put twice")));
  EXPECT_THAT(early([](StepBuilder& step) {
                step.PutNode("a/x", EntryKind::kDict).Tie("a/x", "a/i");
              }),
              StatusIs(kInvalid, HasSubstr("a/x was put twice")));
  // A node that comes later, and a leaf.
  for (const bool node : {true, false}) {
    EXPECT_THAT(Mistake([&](StepBuilder& step) {
                  step.PutInt("a/i", 1).Tie("a/x", "a/i");
                  if (node) step.PutNode("a/x", EntryKind::kDict);
                  if (!node) step.PutInt("a/x", 1);
                }),
                StatusIs(kInvalid, HasSubstr("a/x")));
  }
  StepBuilder step = store_->Begin(9);
  step.Tie("a/x", "b").PutNode("a/n", EntryKind::kDict).Tie("a/y", "b");
  EXPECT_OK(step.PutInt("b", 1).status());
}

// Nobody looks at what the next one says, or at its handle.
TEST_F(EarlyMistakesTest,
       AnUnseenFailureThatANextBeginDidNotTellIsToldByFlush) {
  const auto fails = [this] {
    StepBuilder builder = store_->Begin(1);
    Tensor tensor;
    tensor.dtype = DType::kUint8;
    tensor.shape = {1 << 20};
    tensor.copy = [](std::uint64_t, std::span<std::byte>) {
      return absl::InternalError("the device is gone");
    };
    builder.Put("w", tensor);
    static_cast<void>(std::move(builder).Commit());
    EXPECT_OK(store_->WaitForSaves());
  };
  const auto is_told = [] {
    return StatusIs(absl::StatusCode::kInternal,
                    HasSubstr("step 1 was not saved"));
  };
  fails();
  static_cast<void>(store_->Begin(2));
  EXPECT_THAT(store_->Flush(), is_told());
  EXPECT_OK(store_->Flush());
  fails();
  static_cast<void>(store_->Begin(2).Commit());
  EXPECT_THAT(store_->Flush(), is_told());
  EXPECT_OK(store_->Flush());
  fails();
  static_cast<void>(store_->Begin(2));
  EXPECT_THAT(store_->Begin(2).status(), is_told());
  EXPECT_OK(store_->Close());
}

}  // namespace
}  // namespace ckptree::testing
