// SPDX-License-Identifier: Apache-2.0

// A reader says the same of steps whatever it was asked before: it reads their
// rows as they are asked for, and all of them once it has to.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"

namespace ckptree::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::int64_t> NumbersOf(const std::vector<StepInfo>& steps) {
  std::vector<std::int64_t> numbers;
  numbers.reserve(steps.size());
  for (const StepInfo& info : steps) numbers.push_back(info.step);
  return numbers;
}

class ListingTest : public CoreTest {
 protected:
  absl::Status SaveInt(std::int64_t step, const std::string& branch = "") {
    StepBuilder builder = store_->Begin(step, {.branch = branch});
    builder.PutInt("count", step).SetMetric("loss", 0.5);
    return Commit(std::move(builder));
  }
  Store Reader() { return Store::Open(path(), ReadOnly()).value(); }

  // What the writer, who has all rows, says.
  void ExpectSame(const Store& reader, const std::string& branch,
                  std::mt19937_64* random) {
    const std::vector<std::int64_t> all = NumbersOf(*store_->Steps(branch));
    EXPECT_EQ(*store_->StepNumbers(branch), all);
    for (int i = 0; i < 20; ++i) {
      switch ((*random)() % 5) {
        case 0: {
          const std::size_t count = (*random)() % (all.size() + 2);
          const std::vector<std::int64_t> newest(
              all.end() -
                  static_cast<std::ptrdiff_t>(std::min(count, all.size())),
              all.end());
          EXPECT_EQ(NumbersOf(*reader.NewestSteps(count, branch)), newest);
          break;
        }
        case 1:
          if (all.empty()) break;
          EXPECT_EQ(reader.Resolve(Latest(branch))->step, all.back());
          break;
        case 2: {
          if (all.empty()) break;
          const std::int64_t step = all[(*random)() % all.size()];
          const absl::StatusOr<Step> opened =
              reader.OpenStep(AtStep(step, branch));
          ASSERT_OK(opened);
          EXPECT_EQ(*opened->Value("count")->Int(), step);
          break;
        }
        case 3: {
          const std::int64_t step = static_cast<std::int64_t>((*random)() % 99);
          const bool there = std::binary_search(all.begin(), all.end(), step);
          EXPECT_EQ(reader.Resolve(AtStep(step, branch)).ok(), there);
          break;
        }
        default:
          if ((*random)() % 4 != 0) break;
          EXPECT_EQ(NumbersOf(*reader.Steps(branch)), all);
      }
    }
  }
};

TEST_F(ListingTest, AnyOrderOfQuestions) {
  std::mt19937_64 random(1);
  // Numbers that are close, far from each other, and the highest there is.
  std::vector<std::int64_t> numbers = {0, 1, 2, 7, 1000, 1001, 5'000'000};
  for (int i = 0; i < 40; ++i) {
    numbers.push_back(
        static_cast<std::int64_t>(random() >> (random() % 62 + 1)));
  }
  numbers.push_back(std::numeric_limits<std::int64_t>::max());
  std::shuffle(numbers.begin(), numbers.end(), random);
  for (const std::int64_t number : numbers) {
    const auto there = store_->Steps();
    const std::vector<std::int64_t> before = NumbersOf(*there);
    if (std::find(before.begin(), before.end(), number) == before.end()) {
      ASSERT_OK(SaveInt(number));
    }
  }
  ASSERT_OK(store_->Tag("some", AtStep(7)));
  ASSERT_OK(store_->Fork(AtStep(7), "fork"));
  for (const std::int64_t number : {8, 9, 700}) {
    ASSERT_OK(SaveInt(number, "fork"));
  }
  ASSERT_OK(store_->Fork(AtStep(7), "empty"));
  ASSERT_OK(store_->Delete(1000));
  // Beside the writer, without it, and by the index alone.
  for (const bool closed : {false, true}) {
    for (int i = 0; i < 20; ++i) {
      SCOPED_TRACE(absl::StrCat(closed, " ", i));
      const Store reader = Reader();
      EXPECT_EQ(reader.Resolve(Tagged("some"))->step, 7);
      for (const char* branch : {"", "fork", "empty"}) {
        ExpectSame(reader, branch, &random);
      }
    }
    Open();
  }
}

TEST_F(ListingTest, AStoreWithoutSteps) {
  const Store reader = Reader();
  EXPECT_THAT(*reader.StepNumbers(), IsEmpty());
  EXPECT_THAT(reader.StepNumbers("none").status(),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(*reader.NewestSteps(3), IsEmpty());
  EXPECT_THAT(reader.Resolve(Latest()).status(),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(reader.NewestSteps(3, "none").status(),
              StatusIs(absl::StatusCode::kNotFound));
}

// What was not read at the open is still read as of then.
TEST_F(ListingTest, StepsAreThoseOfTheOpenUntilARefresh) {
  for (const int step : {1, 2, 3}) ASSERT_OK(SaveInt(step));
  Store first = Reader();
  Store second = Reader();
  EXPECT_EQ(second.Resolve(Latest())->step, 3);
  ASSERT_OK(SaveInt(4));
  ASSERT_OK(store_->Delete(1));
  // Looks at the newest commits on its way.
  ASSERT_OK(second.OpenStep(AtStep(2)).status());
  for (const Store* reader : {&first, &second}) {
    EXPECT_EQ(reader->Resolve(Latest())->step, 3);
    EXPECT_THAT(NumbersOf(*reader->NewestSteps(2)), ElementsAre(2, 3));
    EXPECT_THAT(*reader->StepNumbers(), ElementsAre(1, 2, 3));
    EXPECT_THAT(NumbersOf(*reader->Steps()), ElementsAre(1, 2, 3));
  }
  for (Store* reader : {&first, &second}) {
    ASSERT_OK(reader->Refresh());
    EXPECT_EQ(reader->Resolve(Latest())->step, 4);
    EXPECT_THAT(*reader->StepNumbers(), ElementsAre(2, 3, 4));
    EXPECT_THAT(NumbersOf(*reader->Steps()), ElementsAre(2, 3, 4));
  }
  // The one that was listed is kept up; so is one that was not.
  ASSERT_OK(SaveInt(5));
  Store third = Reader();
  ASSERT_OK(SaveInt(6));
  for (Store* reader : {&first, &third}) {
    ASSERT_OK(reader->Refresh());
    EXPECT_EQ(reader->Resolve(Latest())->step, 6);
  }
}

// More look-ups than a reader makes one by one.
TEST_F(ListingTest, ManyLookUps) {
  for (const int step : {1, 2}) ASSERT_OK(SaveInt(step));
  const Store reader = Reader();
  for (int i = 0; i < 1100; ++i) {
    ASSERT_EQ(reader.Resolve(AtStep(2 - i % 2))->step, 2 - i % 2);
  }
  EXPECT_THAT(NumbersOf(*reader.Steps()), ElementsAre(1, 2));
}

}  // namespace
}  // namespace ckptree::testing
