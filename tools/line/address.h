// SPDX-License-Identifier: Apache-2.0

// What is meant: REV[:KEY[SLICE]], and ranges of steps.

#ifndef CKPTREE_TOOLS_LINE_ADDRESS_H_
#define CKPTREE_TOOLS_LINE_ADDRESS_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "ckptree/selector.h"

namespace ckptree::tools {

// The two halves of REV[:KEY]; `key` may end in a slice.
struct Address {
  StepSelector step;
  std::string key;  // Empty: none.
};

// An empty REV is the latest step. kInvalidArgument says what is wrong.
absl::StatusOr<Address> ParseAddress(std::string_view text);

// FIRST..LAST, both included, either may be left out; or one REV. What LAST
// leaves out it takes from FIRST: BRANCH/10..20, and BRANCH/.. is all of a
// branch.
struct StepRange {
  std::string branch = {};  // Where FIRST or LAST says it.
  std::optional<StepSelector> first;
  std::optional<StepSelector> last;
};
absl::StatusOr<StepRange> ParseRange(std::string_view text);

// "-2", "trial/-2": an end of a range that is counted from the end, where -1
// is the newest step. One step has no minus: what a script has computed to be
// -1 is not to be the latest.
struct EndOfRange {
  std::string branch = {};
  int back = 0;  // 0: it is not counted so.
};
EndOfRange FromTheEnd(std::string_view end);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_LINE_ADDRESS_H_
