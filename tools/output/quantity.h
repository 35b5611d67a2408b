// SPDX-License-Identifier: Apache-2.0

// Sizes, times and numbers as people read them.

#ifndef CKPTREE_TOOLS_OUTPUT_QUANTITY_H_
#define CKPTREE_TOOLS_OUTPUT_QUANTITY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace ckptree::tools {

// "812 B", "1.5 GiB"; with `exact` only the digits.
std::string SizeText(std::uint64_t bytes, bool exact = false);

// What "200MB", "1.5 GiB" or "4096" says; nothing where it is no size.
std::optional<std::uint64_t> ParseSize(std::string_view text);

// "just now", "26 min", "3 days": from `then` to `now`.
std::string AgeText(absl::Time then, absl::Time now);

// "2026-01-31T12:00:00.250Z"; empty for the beginning of 1970: not known.
std::string TimeText(absl::Time time);

// "1.25 s", "3 ms".
std::string DurationText(absl::Duration duration);

// The fewest digits that read back as `value`; "nan", "inf", "-inf".
std::string NumberText(double value);

// At most six digits, for tables.
std::string ShortNumberText(double value);

// "1 leaf", "3 leaves".
std::string CountText(std::uint64_t count, std::string_view one,
                      std::string_view many);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_OUTPUT_QUANTITY_H_
