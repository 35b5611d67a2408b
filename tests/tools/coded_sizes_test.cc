// SPDX-License-Identifier: Apache-2.0

// Of a store of coded arrays each command says what the disk gets back: here
// half of what was saved.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/core/fixture.h"
#include "tests/testutil/status_matchers.h"
#include "tests/tools/command_runner.h"

namespace ckptree {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using testing::RandomBytes;

constexpr std::size_t kArray = 3 << 20;

class ToolsCodedSizesTest : public CommandRunner {
 protected:
  // Three steps of which half the bytes are zero; the first is removed.
  void MakeCoded(const std::string& path) {
    ASSERT_OK_AND_ASSIGN(Store store,
                         Store::Open(path, {.create_if_missing = true,
                                            .collect = false,
                                            .coding = Coding::kPlanes}));
    std::vector<std::uint32_t> values(kArray / 4);
    for (std::int64_t step = 1; step <= 3; ++step) {
      const std::vector<std::byte> random =
          RandomBytes(kArray / 2, static_cast<std::uint64_t>(step));
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<std::uint32_t>(random[2 * i]) |
                    static_cast<std::uint32_t>(random[2 * i + 1]) << 8;
      }
      StepBuilder builder = store.Begin(step);
      builder.Put("w", {.dtype = DType::kUint32,
                        .shape = {static_cast<std::int64_t>(values.size())},
                        .data = values.data()});
      ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
    }
    ASSERT_OK(store.Delete(AtStep(1)));
    ASSERT_OK(store.Close());
  }
  // `which` of `ckptree du`: all files, or the living bytes of arrays.
  double Size(const std::string& store, const char* which) {
    const Result result = Run({"-C", store, "du", "-o", "json"});
    EXPECT_EQ(result.code, 0) << result.err;
    return json::parse(result.out)[which].get<double>();
  }
};

TEST_F(ToolsCodedSizesTest, AreWhatTheDiskGetsBack) {
  const std::string coded = scratch_ / "coded";
  ASSERT_NO_FATAL_FAILURE(MakeCoded(coded));
  const auto run = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"-C", coded});
    const Result result = Run(std::move(words));
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
  };
  constexpr const char* kHalf = "1\\.[56] MiB";
  EXPECT_THAT(
      run({"gc", "--dry-run"}),
      ContainsRegex(absl::StrFormat("would free %s of removed", kHalf)));
  EXPECT_THAT(
      run({"du"}),
      AllOf(ContainsRegex(absl::StrFormat(
                " 2 +3\\.0 MiB +3\\.0 MiB +3\\.0 MiB +0 B +%s\n", kHalf)),
            ContainsRegex(
                absl::StrFormat("%s of removed steps: `ckptree gc`", kHalf))));
  EXPECT_THAT(run({"du", "--free", "2"}),
              ContainsRegex(absl::StrFormat("would free %s\n", kHalf)));
  EXPECT_THAT(run({"rm", "2", "--dry-run"}),
              ContainsRegex(absl::StrFormat("would free %s\n", kHalf)));
  // What goes is what was said: of two steps half their bytes.
  const double before = Size(coded, "file_bytes");
  EXPECT_THAT(run({"rm", "2", "-y"}), ContainsRegex("; files: .* -> .*iB\n"));
  EXPECT_NEAR(before - Size(coded, "file_bytes"), kArray, kArray / 8.0);
}

TEST_F(ToolsCodedSizesTest, ACopyIsCodedAsItIsToldTo) {
  const std::string coded = scratch_ / "coded";
  ASSERT_NO_FATAL_FAILURE(MakeCoded(coded));
  const auto copied = [&](std::vector<std::string> words) {
    const Result result = Run(words);
    EXPECT_EQ(result.code, 0) << result.err;
    const std::string& made = words.front() == "copy" ? words[2] : words[3];
    for (const char* step : {"2:w", "3:w"}) {
      EXPECT_EQ(Run({"-C", made, "get", step, "-o", "raw"}).out,
                Run({"-C", coded, "get", step, "-o", "raw"}).out);
    }
    return Size(made, "living_stored_bytes");
  };
  const std::string there = scratch_ / "there";
  EXPECT_NEAR(copied({"copy", coded, there + "1"}), 2 * kArray, kArray / 4.0);
  EXPECT_NEAR(copied({"copy", coded, there + "2", "--coding", "planes"}),
              kArray, kArray / 4.0);
  EXPECT_NEAR(copied({"-C", coded, "backup", there + "3", "--coding=planes"}),
              kArray, kArray / 4.0);
  EXPECT_NEAR(copied({"copy", coded, there + "4", "--coding", "none"}),
              2 * kArray, kArray / 4.0);
  const Result wrong = Run({"copy", coded, there + "5", "--coding", "zip"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, ::testing::HasSubstr("none|planes|auto"));
}

}  // namespace
}  // namespace ckptree
