// SPDX-License-Identifier: Apache-2.0

// Which records a rewrite of segment files keeps, and with which value.

#ifndef CKPTREE_KV_REWRITE_FILTER_H_
#define CKPTREE_KV_REWRITE_FILTER_H_

#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"

namespace ckptree::kv {

enum class Rewritten {
  kDropped,  // Left out.
  kAsItIs,
  kChanged,  // Its value becomes the one that was given.
};

// Told of every record of the files that are rewritten, in key order. For
// kChanged it puts the new value into `changed`, which is empty before.
using RewriteFn = absl::FunctionRef<Rewritten(
    std::string_view key, std::string_view value, std::string* changed)>;

// While it lives, compactions that this thread runs ask `rewrite`; all others
// keep everything. One at a time in a thread.
class RewriteScope {
 public:
  explicit RewriteScope(RewriteFn rewrite);
  ~RewriteScope();
  RewriteScope(const RewriteScope&) = delete;
  RewriteScope& operator=(const RewriteScope&) = delete;

  // True while this thread has one: an error of its compaction leaves all files
  // as they were.
  static bool Active();

 private:
  const RewriteFn rewrite_;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_REWRITE_FILTER_H_
