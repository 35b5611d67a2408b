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

using ToolsCodedSizesTest = CommandRunner;

TEST_F(ToolsCodedSizesTest, AreWhatTheDiskGetsBack) {
  const std::string coded = scratch_ / "coded";
  {
    ASSERT_OK_AND_ASSIGN(Store store,
                         Store::Open(coded, {.create_if_missing = true,
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
  const auto files = [&] {
    return json::parse(run({"du", "-o", "json"}))["file_bytes"]
        .get<std::uint64_t>();
  };
  const std::uint64_t before = files();
  EXPECT_THAT(run({"rm", "2", "-y"}), ContainsRegex("; files: .* -> .*iB\n"));
  EXPECT_NEAR(static_cast<double>(before - files()), kArray, kArray / 8.0);
}

}  // namespace
}  // namespace ckptree
