// SPDX-License-Identifier: Apache-2.0

// Whether this is a build of the address sanitizer.

#ifndef CKPTREE_TESTS_TESTUTIL_SANITIZER_H_
#define CKPTREE_TESTS_TESTUTIL_SANITIZER_H_

namespace ckptree::testing {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressSanitizer = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif
#else
inline constexpr bool kAddressSanitizer = false;
#endif

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_TESTUTIL_SANITIZER_H_
