// SPDX-License-Identifier: Apache-2.0

// Fuzzes what stands on a command line: steps, addresses, ranges, conditions;
// and the numbers that are printed.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ckptree/selector.h"
#include "nlohmann/json.hpp"
#include "tests/fuzz/require.h"
#include "tools/line/address.h"
#include "tools/output/expression.h"
#include "tools/output/failure.h"
#include "tools/output/quantity.h"
#include "tools/output/terminal.h"

namespace ckptree::fuzz {
namespace {

bool Same(const StepSelector& a, const StepSelector& b) {
  return a.kind == b.kind && a.step == b.step && a.name == b.name &&
         a.mode == b.mode && a.back == b.back && a.branch == b.branch;
}

void FuzzSelector(std::string_view text) {
  const absl::StatusOr<StepSelector> selector = ParseSelector(text);
  if (!selector.ok()) return RequireInvalid(selector.status());
  const absl::StatusOr<StepSelector> again = ParseSelector(Text(*selector));
  Require(again.ok() && Same(*selector, *again), "the text of a step names it");
}

void FuzzAddress(std::string_view text) {
  const absl::StatusOr<tools::Address> address = tools::ParseAddress(text);
  if (address.ok()) {
    Require(text.ends_with(address->key), "a key is the end of an address");
    Require(address->step.back >= 0, "steps are counted backwards");
  } else {
    RequireInvalid(address.status());
    Require(!tools::HintOf(address.status()).empty(), "an error has a hint");
  }
  const absl::StatusOr<tools::StepRange> range = tools::ParseRange(text);
  if (!range.ok()) RequireInvalid(range.status());
}

void FuzzExpression(std::string_view text) {
  absl::StatusOr<tools::Expression> expression = tools::Expression::Parse(text);
  if (!expression.ok()) return RequireInvalid(expression.status());
  if (absl::Status bound = expression->Bind({"loss"}); !bound.ok()) {
    RequireInvalid(bound);
    bound = expression->Bind(expression->Names());
    if (!bound.ok()) return RequireInvalid(bound);
  }
  // One value of each kind that a record has.
  const std::vector<nlohmann::ordered_json> values = {
      nullptr,
      true,
      -3,
      18446744073709551615u,
      0.25,
      "text",
      nlohmann::ordered_json::array({1, "a", nullptr})};
  for (const nlohmann::ordered_json& value : values) {
    const absl::StatusOr<bool> holds = expression->Holds(
        [&](std::string_view) -> const nlohmann::ordered_json& {
          return value;
        });
    if (!holds.ok()) RequireInvalid(holds.status());
  }
}

void FuzzQuantity(std::string_view bytes) {
  std::uint64_t bits = 0;
  // An empty input has no memory.
  bytes.copy(reinterpret_cast<char*>(&bits), sizeof(bits));
  const auto ns = static_cast<std::int64_t>(bits);
  double value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  const std::string number = tools::NumberText(value);
  Require(value != value || std::strtod(number.c_str(), nullptr) == value,
          "a number reads back as it was");
  Require(!tools::ShortNumberText(value).empty(), "a short number");
  Require(!tools::SizeText(bits).empty(), "a size");
  Require(tools::SizeText(bits, true) == std::to_string(bits), "exactly");
  Require(!tools::DurationText(absl::Nanoseconds(ns)).empty(), "a duration");
  Require(tools::TimeText(absl::FromUnixNanos(ns)).empty() == (ns == 0),
          "a time");
  Require(!tools::AgeText(absl::FromUnixNanos(ns), absl::UnixEpoch()).empty(),
          "an age");
}

void FuzzTerminal(std::string_view text) {
  Require(tools::Escape(text).find_first_of("\n\r\x1b") == text.npos,
          "what is printed has no control characters");
  tools::EscapeLines(text);
  Require(tools::DisplayWidth(text) >= 0, "a width");
  for (const int width : {0, 1, 8}) {
    tools::ElideMiddle(tools::Escape(text), width, true);
    tools::ElideMiddle(tools::Escape(text), width, false);
  }
}

}  // namespace
}  // namespace ckptree::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  const std::string_view text = ckptree::fuzz::TextOf(data, size);
  ckptree::fuzz::FuzzSelector(text);
  ckptree::fuzz::FuzzAddress(text);
  ckptree::fuzz::FuzzExpression(text);
  ckptree::fuzz::FuzzQuantity(text);
  ckptree::fuzz::FuzzTerminal(text);
  return 0;
}
