// SPDX-License-Identifier: Apache-2.0

// What writer and reader of a policy's text share.

#ifndef CKPTREE_CORE_POLICY_PRESERVATION_TEXT_H_
#define CKPTREE_CORE_POLICY_PRESERVATION_TEXT_H_

namespace ckptree::internal {

// A policy that is nested deeper is refused, made or read.
inline constexpr int kMaxPolicyDepth = 32;

// Bytes of names, numbers and times that stand without quotes.
inline bool IsPolicyWordByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-' ||
         c == '/' || c == '+';
}

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_POLICY_PRESERVATION_TEXT_H_
