// SPDX-License-Identifier: Apache-2.0

// What a caller must have done; a mistake in a program ends it.

#ifndef CKPTREE_BASE_REQUIRE_H_
#define CKPTREE_BASE_REQUIRE_H_

namespace ckptree::base {

// Where `met` is false, prints "ckptree: " and `message` to standard error and
// aborts, in release builds as well: for calls that no correct program makes,
// and that would read memory which is not there. What data or the system can
// cause is a status instead.
void Require(bool met, const char* message);

}  // namespace ckptree::base

#endif  // CKPTREE_BASE_REQUIRE_H_
