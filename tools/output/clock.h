// SPDX-License-Identifier: Apache-2.0

// What time it is, for ages and for waits.

#ifndef CKPTREE_TOOLS_OUTPUT_CLOCK_H_
#define CKPTREE_TOOLS_OUTPUT_CLOCK_H_

#include "absl/time/time.h"

namespace ckptree::tools {

// Now; or, where $SOURCE_DATE_EPOCH has a number of seconds since 1970, then:
// so that what is printed is the same each time, in documents and tests.
absl::Time NowForAges();

// For waits and how long something took: a clock that only goes forward, though
// the time of day be set. It is to be compared with itself.
absl::Time NowForWaits();

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_OUTPUT_CLOCK_H_
