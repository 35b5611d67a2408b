// SPDX-License-Identifier: Apache-2.0

// Fuzzes command lines: words with zero bytes between them.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/fuzz/require.h"
#include "tools/line/arguments.h"

namespace ckptree::fuzz {
namespace {

// One of each sort.
constexpr std::array<tools::FlagSpec, 5> kFlags = {{
    {"json", 'j'},
    {"quiet"},
    {"limit", 'n', "N", "At most this many"},
    {"where", 0, "EXPR", "Only those"},
    {"color", 0, "WHEN", "Colours", "auto|always|never"},
}};

void FuzzArguments(std::string_view input) {
  std::vector<std::string> words;
  while (true) {
    const std::size_t end = input.find('\0');
    words.emplace_back(input.substr(0, end));
    if (end == input.npos) break;
    input.remove_prefix(end + 1);
  }
  const absl::StatusOr<tools::Arguments> arguments =
      tools::Arguments::Parse(kFlags, words);
  if (!arguments.ok()) return RequireInvalid(arguments.status());
  for (const std::string& word : arguments->words()) {
    Require(std::find(words.begin(), words.end(), word) != words.end(),
            "a word is one of those that were given");
  }
  const auto number = arguments->Number("limit");
  if (!number.ok()) return RequireInvalid(number.status());
  Require(number->has_value() == arguments->Has("limit"), "a number is there");
  Require(!number->has_value() || **number >= 0, "a number is not negative");
  const std::string color = arguments->Get("color", "auto");
  Require(color == "auto" || color == "always" || color == "never",
          "a choice is one of those there are");
}

}  // namespace
}  // namespace ckptree::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  ckptree::fuzz::FuzzArguments(ckptree::fuzz::TextOf(data, size));
  return 0;
}
