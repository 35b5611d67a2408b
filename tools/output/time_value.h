// SPDX-License-Identifier: Apache-2.0

// Times as people write them, in conditions.

#ifndef CKPTREE_TOOLS_OUTPUT_TIME_VALUE_H_
#define CKPTREE_TOOLS_OUTPUT_TIME_VALUE_H_

#include <optional>
#include <string_view>

#include "absl/time/time.h"

namespace ckptree::tools {

// What ParseTime() takes, for messages.
inline constexpr std::string_view kTimeForms =
    "a time is '2026-11-28', '2026-11-28 23:00', '2026-11-28T23:00:05.5Z' or "
    "one with an offset, as +02:00";

// A date, which is its first moment, or a date, `T` or a space, and a time of
// day, of which seconds and a fraction may be left out; then Z, an offset, or
// nothing, which is Z. Nothing for every other text.
std::optional<absl::Time> ParseTime(std::string_view text);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_OUTPUT_TIME_VALUE_H_
